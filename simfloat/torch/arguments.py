"""Find the floating-point tensors and the numbers among the arguments of PyTorch's operations, and raise errors.

The error for an operation without a rule is created here, with its reason. A number that a movement puts into a tensor
is rounded to the format of the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch

from simfloat.formats import Format
from simfloat.simulation.place import Place, widest_format
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import numbers_of, stored_format, tag_of

Arguments = tuple[Any, ...]
Options = dict[str, Any]

#: Types in which PyTorch passes several tensors.
LISTS = (list, tuple)

#: The advice for complex and sparse tensors.
COMPLEX = "complex numbers have no rules; write the module in real numbers."
SPARSE = "sparse tensors have no rules; make the layer dense, for example with nn.Embedding(sparse=False)."


def floating_tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors of floating-point or complex numbers among arguments, in their order."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dtype.is_floating_point or value.dtype.is_complex:
                tensors.append(value)
        elif isinstance(value, LISTS) and value and not isinstance(value[0], int):
            tensors += floating_tensors_in(value)
    return tensors


def operands_of(run: RunContext, func: Any, args: Arguments, options: Options) -> list[torch.Tensor]:
    """Return the floating-point tensors among the arguments; raise ValueError for complex and sparse tensors."""
    # This runs for every operation, and most have no options: then no tuple is created.
    operands = floating_tensors_in((*args, *options.values()) if options else args)
    for x in operands:
        if x.dtype.is_complex:
            raise refusal(run, func, COMPLEX)
        if x.layout is not torch.strided:
            raise refusal(run, func, SPARSE)
    return operands


def integer_result(func: Any, args: Arguments, options: Options) -> tuple[Any, list[torch.Tensor]]:
    """Return PyTorch's result for arguments without floating-point numbers, and the floating-point tensors in it.

    These tensors, for example quotients, are rounded by a policy. The result of an operation without tensor operands is
    data, and is not among them.
    """
    result = func(*args, **options)
    # arange or full of integers has no tensor operand. Its result is data, like an input, and is not rounded.
    is_of_tensors = any(isinstance(x, torch.Tensor) for x in args)
    return result, floating_tensors_in(result if isinstance(result, LISTS) else (result,)) if is_of_tensors else []


def refusal(run: RunContext, func: Any, remedy: str) -> ValueError:
    """Return the error for an operation that cannot be carried out."""
    where = f"in layer {run.path!r}" if run.path else "outside of any layer"
    return ValueError(f"{func} {where} cannot be simulated: {remedy}")


Tensor = torch.Tensor

#: By PyTorch's name: the arguments that may be a single number.
NUMBER_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("masked_fill", "index_fill", "fill", "scatter", "constant_pad_nd"), ("value",)),
    **dict.fromkeys(("copy", "select_scatter", "slice_scatter", "as_strided_scatter", "diagonal_scatter"), ("src",)),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put", "heaviside"), ("values",)),
    **dict.fromkeys(("masked_scatter", "index_copy", "put"), ("source",)),
    **dict.fromkeys(("full_like", "new_full"), ("fill_value",)),
    "where": ("self", "other"),
    "_unsafe_masked_index": ("fill",),
}


@cache
def number_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments of an operation that may be a single number."""
    names = NUMBER_ARGUMENTS.get(func.overloadpacket.__name__.removesuffix("_"), ())
    return tuple((at, x.name) for at, x in enumerate(func._schema.arguments) if x.name in names)


def is_number(x: Any) -> bool:
    """True if an argument is one number: a Python number, or a 0-dimensional tensor."""
    return not x.ndim if isinstance(x, Tensor) else isinstance(x, int | float) and not isinstance(x, bool)


class InsertedNumbers:
    """The numbers among the arguments of a movement, and the format of the tensors that they are put into."""

    def __init__(self, func: Any, args: Arguments, options: Options) -> None:
        self._args, self._options = args, options
        positional = {at: args[at] for at, _ in number_arguments(func) if at < len(args)}
        named = {name: options[name] for _, name in number_arguments(func) if name in options}
        requested_dtype = options.get("dtype")
        is_floating = requested_dtype is None or requested_dtype.is_floating_point
        candidates = (positional | named).items() if is_floating else ()
        self.numbers: dict[int | str, Any] = {key: x for key, x in candidates if is_number(x)}
        others = [x for at, x in enumerate(args) if at not in self.numbers]
        others += [x for name, x in options.items() if name not in self.numbers]
        #: The operands that decide the format of the result.
        self.target_operands = floating_tensors_in(others)
        # In torch.where(condition, 1.0, 0.0), for example, no operand is a tensor with axes.
        if not self.target_operands:  # a choice between numbers: rounded ones decide
            single = [x for x in self.numbers.values() if isinstance(x, Tensor) and x.is_floating_point()]
            self.target_operands = [x for x in single if tag_of(x).format is not None] or single

    @property
    def format(self) -> Format | None:
        """The format of the result; None if no format is known for the tensors that the numbers are put into."""
        formats = [tag_of(x).format for x in self.target_operands]
        return (
            None
            if all(format is None for format in formats)
            else widest_format(map(stored_format, self.target_operands))
        )

    def round_arguments(self, place: Place, format: Format) -> tuple[Arguments, Options]:
        """Return the arguments, with these numbers rounded to the format."""
        rounded_numbers = {key: _round_number(x, place, format) for key, x in self.numbers.items()}
        args = tuple(rounded_numbers.get(at, x) for at, x in enumerate(self._args))
        return args, {name: rounded_numbers.get(name, x) for name, x in self._options.items()}


def _round_number(x: Any, place: Place, format: Format) -> Any:
    """Return a number rounded to a format, or the argument itself if it is a number of the format."""
    value = numbers_of(x)
    rounded = place.round_constant(value, format)
    # The argument itself, not a float of equal value: PyTorch may treat an int differently, for example for the dtype
    # of a result.
    if value == rounded and np.signbit(value) == np.signbit(rounded):
        return x
    if not isinstance(x, Tensor):
        return float(rounded)
    return torch.tensor(float(rounded), dtype=x.dtype if x.is_floating_point() else torch.float64)
