"""Checking derivatives against central differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import is_on_gpu
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff.parameter import Parameter
from simfloat.autodiff.tensor import Tensor
from simfloat.simulation import no_grad, simulate

#: The derivatives of the elements of a result, by rows, with respect to those of an input, by columns.
Jacobian = NDArray[np.float64]
Call = Callable[[], list[Tensor]]


def gradcheck(
    function: Callable[..., Any],
    inputs: Tensor | ArrayLike | Sequence[Any] = (),
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Whether the derivatives that backward finds are those that central differences find: True, or ValueError.

    `function` takes the `inputs`, one or a tuple or list of them, and returns a tensor or several. Checked are the
    derivatives of all elements that it returns, with respect to all elements of the inputs that are arrays of floats or
    tensors that require a gradient, and of the parameters of `function` if it is a module::

        sf.gradcheck(swish, np.linspace(-4, 4, 9))
        sf.gradcheck(sf.nn.Linear(3, 2), np.ones((4, 3)))

    All is computed under the policy ``fp64``, whatever is in force. A derivative passes if it is within
    atol + rtol * |d| of d, the difference from x - eps to x + eps over their distance; names and defaults are
    torch.autograd.gradcheck's. Inputs, parameters, their gradients and buffers are left as they were.

    Raises ValueError naming the worst element (with raise_exception=False it returns False), for a function that gives
    other numbers when it is called again, for one that returns no tensors, and where nothing is to be checked.
    """
    _check_options(eps=eps, atol=atol, rtol=rtol)
    values = inputs if isinstance(inputs, tuple | list) else (inputs,)
    _check_on_cpu([*values, *getattr(function, "parameters", list)()])
    if not callable(function):
        raise ValueError(
            f"gradcheck needs a function of the inputs or a module, then the inputs; got {function!r} first."
        )
    arguments = [_argument(x) for x in values]
    checked = {f"input {i}": x for i, x in enumerate(arguments) if isinstance(x, Tensor) and x.requires_grad}
    checked |= dict(getattr(function, "named_parameters", dict)())
    if not checked:
        raise ValueError("gradcheck needs an array of floats, a tensor that requires a gradient, or a module.")
    modules: list[Any] = list(getattr(function, "modules", list)())  # whose buffers move while they train
    before = [(x, dict(vars(x))) for x in (*checked.values(), *modules)]
    try:
        for x in checked.values():
            # What `data` lends others may write to, as is done here: a parameter looks at its numbers at each use.
            x.numbers, x.format, x.grad = np.array(x.data, np.float64), None, None
        with simulate("fp64"), np.errstate(all="ignore"):  # what is not finite is found below
            faults = list(_faults(lambda: _results(function, arguments), checked, eps, atol, rtol))
    finally:
        for x, state in before:
            vars(x).update(state)
    if faults and raise_exception:
        raise ValueError(f"{len(faults)} derivatives are wrong, that of {max(faults)[1]}.")
    return not faults


def _check_options(**options: Any) -> None:
    for name, value in options.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < np.inf or (name == "eps" and value == 0):
            raise ValueError(
                f"{name} must be a finite number, {'above' if name == 'eps' else 'at least'} 0; got {value!r}."
            )


def _check_on_cpu(arrays: Sequence[Any]) -> None:
    if any(is_on_gpu(x.numbers if isinstance(x, Tensor) else x) for x in arrays):
        raise ValueError(
            'gradcheck computes on the CPU: pass NumPy\'s arrays, and a module brought there by to("cpu").'
        )


def _argument(x: Any) -> Any:
    """What the function is given: an array of floats and a tensor as a tensor of float64, all else as it is."""
    if isinstance(x, Parameter):
        return x
    if isinstance(x, Tensor):
        return Tensor(np.array(x.numbers, np.float64), x.requires_grad)
    return Tensor(np.array(as_operand(x), np.float64), True) if np.asarray(x).dtype.kind == "f" else x


def _results(function: Callable[..., Any], arguments: list[Any]) -> list[Tensor]:
    returned = function(*arguments)
    results = list(_flat(returned))
    if not results or not all(isinstance(result, Tensor) for result in results):
        raise ValueError(f"gradcheck needs a function that returns a tensor or several, got {returned!r}.")
    return results


def _flat(returned: Any) -> Iterator[Any]:
    """What stands in tuples and lists, however deep, as recurrent layers return it; None is nothing."""
    if isinstance(returned, tuple | list):
        for part in returned:
            yield from _flat(part)
    elif returned is not None:
        yield returned


def _faults(
    call: Call, checked: dict[str, Tensor], eps: float, atol: float, rtol: float
) -> Iterator[tuple[float, str]]:
    """Every derivative that is wrong: how many times its tolerance it is off, and which it is."""
    results = call()
    if any(a.numbers.tobytes() != b.numbers.tobytes() for a, b in zip(results, call(), strict=True)):
        raise ValueError(
            "gradcheck: the function gives other numbers when it is called again, so it has no derivative."
        )
    by_backward = [_by_backward(result, checked) for result in results]
    for name, x in checked.items():
        for j, (result, d) in enumerate(zip(results, _by_differences(call, results, x, eps), strict=True)):
            jacobian = by_backward[j][name]
            off = np.where(jacobian == d, 0.0, np.abs(jacobian - d) / (atol + rtol * np.abs(d)))
            for row, column in np.argwhere(~(off <= 1)):
                of, to = _element(f"result {j}", row, result.shape), _element(name, column, x.shape)
                values = f"{jacobian[row, column]:.6g} by backward and {d[row, column]:.6g} by differences"
                yield float(np.nan_to_num(off[row, column], nan=np.inf)), f"{of} with respect to {to}: {values}"


def _element(name: str, number: int, shape: tuple[int, ...]) -> str:
    """The name of an array with the index of an element of it."""
    return f"{name}[{', '.join(str(i) for i in np.unravel_index(number, shape))}]" if shape else name


def _by_backward(result: Tensor, checked: dict[str, Tensor]) -> dict[str, Jacobian]:
    jacobians = {name: np.zeros((result.size, x.size)) for name, x in checked.items()}
    if not result.requires_grad:
        return jacobians
    for row in range(result.size):
        one = np.zeros(result.size)
        one[row] = 1
        result.backward(one.reshape(result.shape))
        for name, x in checked.items():
            if x.grad is not None:
                jacobians[name][row] = x.grad.reshape(-1)
            x.grad = None
    return jacobians


@no_grad()
def _by_differences(call: Call, results: list[Tensor], x: Tensor, eps: float) -> list[Jacobian]:
    """The derivatives of every result with respect to x."""
    jacobians, middle = [np.zeros((result.size, x.size)) for result in results], x.numbers

    def results_at(place: tuple[int, ...], end: float) -> list[NDArray]:
        x.numbers = middle.copy()
        x.numbers[place] = end
        return [result.numbers.reshape(-1) for result in call()]

    for column, place in enumerate(np.ndindex(x.shape)):
        low, high = (float(middle[place] + step) for step in (-eps, eps))
        for derivatives, before, after in zip(jacobians, results_at(place, low), results_at(place, high), strict=True):
            derivatives[:, column] = (after - before) / (high - low)
    x.numbers = middle
    return jacobians
