"""Methods of NumPy's arrays that compute nothing: tests, places, order, selections and single elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.numpy_protocol import FUNCTIONS, READERS
from simfloat.arithmetic.spacing import place_of_largest, place_of_least
from simfloat.arrays.alternatives import ALTERNATIVES

#: An axis, several of them, or None for all.
ArrayAxes = int | Sequence[int] | None

#: Option of a method of NumPy's arrays -> what to write for it; the name of the method is inserted.
INSTEAD_OF_OPTIONS = {
    "dtype": "x.astype(format).{0}()", "out": "y[...] = x.{0}()", "where": "x[condition].{0}()",
    "sum initial": "sf.sum(x, initial=..., accumulate=x.accumulate)", "max initial": "x.max().maximum(initial)",
    "min initial": "x.min().minimum(initial)",
}  # fmt: skip


class NumpyMethods:
    """Methods that read or move the elements of an array."""

    numbers: NDArray

    #: NumPy's functions of such arrays, which a message for a missing method names.
    further_functions: ClassVar[Mapping[Callable[..., Any], Callable[..., Any]]]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def _real_numbers(self, operation: str) -> NDArray[np.floating]:
        raise NotImplementedError

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Self]:
            """Return a function of the catalog, which `ArrayFunctions` adds."""
    else:

        def __getattr__(self, name: str) -> NoReturn:
            function, instead = getattr(np, name, None), ALTERNATIVES.get(name)
            if callable(function) and function in {*self.further_functions, *FUNCTIONS, *READERS}:
                instead = f"np.{name}(x)"
            advice = f": write {instead}" if instead and hasattr(np.ndarray, name) else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __contains__(self, value: Any) -> bool:
        return bool(np.any(self == value))  # as in NumPy; without this method, `in` compares rows

    def any(self, axis: ArrayAxes = None, keepdims: bool = False) -> Any:
        """Return True if an element along `axis` is not zero, as numpy.any does."""
        return np.any(self.numbers, axis, keepdims=keepdims)  # type: ignore[arg-type]

    def all(self, axis: ArrayAxes = None, keepdims: bool = False) -> Any:
        """Return True if no element along `axis` is zero, as numpy.all does."""
        return np.all(self.numbers, axis, keepdims=keepdims)  # type: ignore[arg-type]

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """Return the index of the largest element along `axis`, as numpy.argmax does."""
        return place_of_largest(self._real_numbers("An order"), axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """Return the index of the smallest element along `axis`, as numpy.argmin does."""
        return place_of_least(self._real_numbers("An order"), axis, keepdims)

    def argsort(self, axis: int | None = -1) -> Any:
        """Return the indices that sort the elements along `axis`, as numpy.argsort does."""
        return np.argsort(self.numbers, axis)

    def sort(self, axis: int = -1) -> None:
        """Sort the elements along `axis` in place, in the order of numpy.sort."""
        self[...] = np.sort(self, axis)  # type: ignore[call-overload]

    def conjugate(self) -> Self:
        """Return the complex conjugates, as `conj` does."""
        return self.conj()

    def take(self, indices: Any, axis: int | None = None) -> Self:
        """Return the elements at `indices` along `axis`, as numpy.take does."""
        return np.take(self, indices, axis)  # type: ignore[call-overload]

    def repeat(self, repeats: Any, axis: int | None = None) -> Self:
        """Repeat the elements along `axis`, as numpy.repeat does."""
        return np.repeat(self, repeats, axis)  # type: ignore[call-overload]

    def round(self, decimals: int = 0) -> Self:
        """Return the nearest integers, as :meth:`rint` does; ValueError for other `decimals` than 0."""
        return np.round(self, decimals)  # type: ignore[call-overload]

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item()) if digits is None else self.round(digits)

    def fill(self, value: Any) -> None:
        """Round `value` and write it to all elements."""
        self[...] = value

    def tolist(self) -> Any:
        """Return the values as Python numbers in nested lists."""
        return self.numbers.tolist()

    def item(self, *index: Any) -> Any:
        """Return an element as a Python number.

        `index` is the position in row-major order, or one position for each axis. Without it, the array must have
        exactly one element, otherwise ValueError.
        """
        element = self.numbers
        if index:
            place = index[0] if len(index) == 1 else index
            element = (element if isinstance(place, tuple) else element.reshape(-1))[place]
        if element.size != 1:
            raise ValueError(f"Only an array of one element is a number; this one has the shape {element.shape}.")
        return element.item()


def refuse_options(method: str, options: Mapping[str, Any]) -> NoReturn:
    """Raise ValueError for options that a reduction does not have, with what to write instead."""
    own = "axis, keepdims" + ", ddof" * (method in ("var", "std"))
    texts = (INSTEAD_OF_OPTIONS.get(f"{method} {key}") or INSTEAD_OF_OPTIONS.get(key) for key in options)
    advice = "; ".join(
        f"for {key}= write {text.format(method)}" for key, text in zip(options, texts, strict=True) if text
    )
    raise ValueError(
        f"The method {method} of arrays of a format takes {own}, and nothing else; got {', '.join(options)}"
        f"{': ' * bool(advice)}{advice}."
    )
