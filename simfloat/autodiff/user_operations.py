"""Custom operations with a name for policies and observers: primitives with derivatives, and composites.

A custom operation receives the rounded arithmetic `u`. `gradcheck` compares derivatives with central differences.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, update_wrapper, wraps
from inspect import Signature, getdoc, isfunction, signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.catalog import FUNCTIONS, Kind, Operation, register
from simfloat.arithmetic.machines import as_array, device_of, is_on_gpu
from simfloat.arithmetic.operands import as_operand, broadcast_shape
from simfloat.arithmetic.target import notify
from simfloat.autodiff.parameter import Parameter
from simfloat.autodiff.record import BegunOperation, begin, finish
from simfloat.autodiff.reductions import Axes, normalized_axes
from simfloat.autodiff.tensor import Tensor, compose, tensor_of
from simfloat.autodiff.variable import Variable
from simfloat.formats import Format
from simfloat.simulation import no_grad, simulate
from simfloat.simulation.arithmetic import Arithmetic, Input, PendingEvents
from simfloat.simulation.formulas import Slope, keepdims_shape, sum_to_shape
from simfloat.sums.bounds import bounds_of
from simfloat.sums.operands import first_outside_format

#: The name of the gradient of the result among the operands of a product.
GRADIENT = "gradient"


class UserArithmetic:
    """The arithmetic of a custom operation: every result is rounded once, as the policy says for its place.

    The functions of simfloat are its methods, without format and mode: ``u.add(a, b)``, ``u.fma(a, b, c)``,
    ``u.exp(x)``. They accept arrays and numbers, and broadcast. If all operands are numbers, the result is a NumPy
    scalar, which can be combined with arrays on any device. Use NumPy to move, select or negate values.
    """

    __slots__ = ("_arithmetic", "_inputs")

    def __init__(self, arithmetic: Arithmetic, inputs: Mapping[str, Input]) -> None:
        self._arithmetic, self._inputs = arithmetic, inputs

    @property
    def format(self) -> Format:
        """The format of results."""
        return self._arithmetic.format

    def round(self, x: ArrayLike) -> NDArray[np.floating]:
        """Return the values of `x`, rounded."""
        return self._arithmetic.round(as_operand(x))[()]

    def sum(self, x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> NDArray[np.floating]:
        """Sum over `axis` in row-major order with the accumulator `reduce` of the policy; by default over all axes.

        `keepdims=True` keeps the reduced axes with size 1.
        """
        x = as_operand(x)
        axes = normalized_axes(axis, x.ndim)
        total = self._arithmetic.sum(x, axes)
        return total.reshape(keepdims_shape(x.shape, axes)) if keepdims else total

    def matmul(self, a: ArrayLike, b: ArrayLike, a_is: str, b_is: str) -> NDArray[np.floating]:
        """Multiply matrices (..., m, k) and (..., k, n) with the accumulator `accumulate` of the policy.

        `a_is` and `b_is` identify a and b: each is the name of an operand of the operation, which may be transposed or
        reshaped, or ``"gradient"``. They determine how a and b are rounded first. Raises ValueError for other names or
        shapes.
        """
        a, b = as_operand(a, "a"), as_operand(b, "b")
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
            raise ValueError(f"matmul needs a (..., m, k) and b (..., k, n), got shapes {a.shape} and {b.shape}.")
        return self._arithmetic.matmul(a, b, self._input(a_is), self._input(b_is))

    def _input(self, name: str) -> Input:
        if name in self._inputs:
            return self._inputs[name]
        if not self._inputs:
            raise ValueError(f'{self._arithmetic.where} multiplies matrices: declare it with kind="contraction".')
        raise ValueError(
            f"{self._arithmetic.where} rounds operands of matmul as one of {', '.join(self._inputs)}; got {name!r}."
        )

    def __getattr__(self, name: str) -> Callable[..., NDArray[np.floating]]:
        if name not in FUNCTIONS:
            raise AttributeError(
                f"The arithmetic of an operation has no function {name!r}. It has round, sum, matmul, "
                f"{', '.join(FUNCTIONS)}."
            )
        return partial(self._apply, name)

    def _apply(self, name: str, *operands: ArrayLike) -> NDArray[np.floating]:
        names = FUNCTIONS[name].operands
        if len(operands) != len(names):
            raise TypeError(f"{name} takes the operands {', '.join(names)}, got {len(operands)} of them.")
        return self._arithmetic.apply(name, *map(as_operand, operands, names))[()]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FUNCTIONS})


#: Derivatives of the elements of a result (rows) with respect to the elements of an input (columns).
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
    """Compare the derivatives of `backward` with central differences.

    The check covers all elements of the results, with respect to all elements of the inputs that are arrays of floats
    or tensors that require a gradient, and with respect to the parameters of `function` if it is a module::

        sf.gradcheck(swish, np.linspace(-4, 4, 9))
        sf.gradcheck(sf.nn.Linear(3, 2), np.ones((4, 3)))

    Everything is computed under the policy ``fp64``, whatever policy is in force. A derivative passes if it is within
    atol + rtol * |d| of d, the difference from x - eps to x + eps divided by their distance. Names and defaults are
    those of torch.autograd.gradcheck. Inputs, parameters, gradients and buffers are restored.

    Parameters:
        function: a function of the inputs that returns a tensor or several, or a module.
        inputs: one input, or a tuple or list of inputs.
        eps: half of the distance of central differences.
        atol, rtol: the absolute and relative tolerance.
        raise_exception: if False, the result for a wrong derivative is False, not a ValueError.

    Returns:
        True if all derivatives pass.

    Raises:
        ValueError: if a derivative is wrong; the message names the worst element.
        ValueError: if the function returns different values at a second call, or returns no tensors.
        ValueError: if there is nothing to check, or an option is invalid.
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
    modules: list[Any] = list(getattr(function, "modules", list)())  # training changes their buffers
    before = [(x, dict(vars(x))) for x in (*checked.values(), *modules)]
    try:
        for x in checked.values():
            # Callers may write to an array that `data` returned, as this function does; a parameter then checks its
            # values at each use.
            x.numbers, x.format, x.grad = np.array(x.data, np.float64), None, None
        with simulate("fp64"), np.errstate(all="ignore"):  # values that are not finite are found below
            faults = list(_faults(lambda: _results(function, arguments), checked, eps, atol, rtol))
    finally:
        for x, state in before:
            vars(x).update(state)
    if faults and raise_exception:
        raise ValueError(f"{len(faults)} derivatives are wrong; the worst is that of {max(faults)[1]}.")
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
            'gradcheck computes on the CPU: pass NumPy arrays, and move a module to the CPU with to("cpu").'
        )


def _argument(x: Any) -> Any:
    """Return an argument of the function: arrays of floats and tensors as float64 tensors, all others unchanged."""
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
    """Yield the items of nested tuples and lists, such as the results of recurrent layers, without None."""
    if isinstance(returned, tuple | list):
        for part in returned:
            yield from _flat(part)
    elif returned is not None:
        yield returned


def _faults(
    call: Call, checked: dict[str, Tensor], eps: float, atol: float, rtol: float
) -> Iterator[tuple[float, str]]:
    """Yield every wrong derivative: its error divided by the tolerance, and its description."""
    results = call()
    if any(a.numbers.tobytes() != b.numbers.tobytes() for a, b in zip(results, call(), strict=True)):
        raise ValueError(
            "gradcheck: the function returns different values when it is called again, so it has no derivative."
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
    """Return the name of an array with the index of one of its elements."""
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
    """Return the derivatives of every result with respect to x, by central differences."""
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


#: Kinds of custom operations.
KINDS = ("pointwise", "reduction", "contraction", "composite")

Inputs = dict[str, Input]


def operation(
    *derivatives: Slope | None, kind: Kind = "pointwise", name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that turns a function into an operation of tensors that obeys policies.

    The function takes ``(u, *operands, **options)``: the arithmetic of its place
    (:class:`~simfloat.autodiff.user_operations.UserArithmetic`), one array per operand, and keyword-only options. A
    derivative takes ``(u, g, y, *operands, **options)``: the arithmetic of the backward pass, the gradient `g` of the
    result `y`, and again the operands and options::

        def swish_slope(u, g, y, x):
            s = u.sigmoid(x)
            return u.multiply(g, u.fma(y, u.subtract(1, s), s))

        @sf.operation(swish_slope)
        def swish(u, x):
            "x * sigmoid(x)."
            return u.multiply(x, u.sigmoid(x))

        with sf.simulate("bf16-standard"):
            y = swish(sf.Tensor([1.0, 2.0], requires_grad=True))

    The functions must return results of `u`, or elements of such results: numbers of ``u.format``.

    Overrides, observers and random streams refer to the operation by its name. A second definition, as in a notebook,
    replaces the first. An operation is pickled by reference, as functions are.

    Parameters:
        derivatives: one function for each operand; None for an operand without derivative.
        kind: one of these kinds.

            * ``"pointwise"``: operands broadcast; gradients have the shape of the result, and are summed to the shape
              of the operand;
            * ``"reduction"``: operands have any shapes; gradients have the shape of the operand;
            * ``"contraction"``: as a reduction, and ``u.matmul`` rounds its operands to the role `compute`;
            * ``"composite"``: a function of tensors that consists of operations with derivatives. It takes no `u` and
              no derivatives.

        name: the name of the operation; by default the name of the function.

    Returns:
        A decorator.

    Raises:
        ValueError: if the kind is unknown, another operation has the name, or the number of derivatives is not the
            number of operands.
        ValueError: when the operation runs, if a result has a wrong shape or is not in the format.
    """
    if kind not in KINDS:
        raise ValueError(f"The kind of an operation is one of {', '.join(KINDS)}; got {kind!r}.")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not isfunction(function):
            raise ValueError(f"Write @simfloat.operation(derivative, ...) above a function; got {function!r}.")
        called = function.__name__ if name is None else name
        operands = _operands(function)[0 if kind == "composite" else 1 :]
        if not operands:
            first = "tensors" if kind == "composite" else "the arithmetic and of arrays"
            raise ValueError(f"The operation {called!r} needs an operand: a function of {first}; got {function!r}.")
        _check_derivatives(called, derivatives, () if kind == "composite" else operands)
        row = Operation(called, operands, kind, (getdoc(function) or "").partition("\n")[0])
        register(row, function.__module__)
        return _composite(called, function) if kind == "composite" else Primitive(row, function, derivatives)

    return decorate


def _operands(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters that are not keyword-only."""
    parameters = signature(function).parameters.values()
    if any(p.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for p in parameters):
        raise ValueError(
            f"The operands and options of an operation must have names; {function.__name__} takes *args or **kwargs."
        )
    return tuple(p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY)


def _check_derivatives(name: str, derivatives: tuple[Slope | None, ...], operands: tuple[str, ...]) -> None:
    if len(derivatives) != len(operands):
        each = f"a derivative for each of its operands, {', '.join(operands)}" if operands else "no derivatives"
        raise ValueError(f"The operation {name!r} takes {each}: expected {len(operands)}, got {len(derivatives)}.")
    for derivative in derivatives:
        if derivative is not None and not callable(derivative):
            raise ValueError(
                f"A derivative of {name!r} is a function, or None where there is none; got {derivative!r}."
            )


def _composite(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its operations as parts of the composite `name`."""

    @wraps(function)
    def run(*operands: Any, **options: Any) -> Any:
        values = [*operands, *options.values()]
        tensors = [i for i, value in enumerate(values) if isinstance(value, Variable)]

        def body(*inside: Variable) -> Any:
            tensor_at = dict(zip(tensors, inside, strict=True))
            now = [tensor_at.get(i, value) for i, value in enumerate(values)]
            return function(*now[: len(operands)], **dict(zip(options, now[len(operands) :], strict=True)))

        return compose(name, body, *(values[i] for i in tensors))

    return run


class Primitive:
    """An operation defined by :func:`simfloat.operation`, called with tensors, arrays or numbers; the result is a
    tensor.
    """

    def __init__(self, row: Operation, forward: Callable[..., NDArray], slopes: tuple[Slope | None, ...]) -> None:
        update_wrapper(self, forward)
        arithmetic, *parameters = signature(forward).parameters.values()
        self.__signature__ = signature(forward).replace(parameters=parameters, return_annotation=Signature.empty)
        self._row, self._forward, self._slopes = row, forward, slopes

    def __call__(self, *operands: Any, **options: Any) -> Tensor:
        """Compute the operation on tensors, arrays and numbers, and record it for backward."""
        bound = self.__signature__.bind(*operands, **options)
        bound.apply_defaults()
        started = begin(self._row.name, *bound.args)
        inputs = self._inputs(started)
        arrays, arithmetic = _on_one_device([x.numbers for x in started.operands]), started.forward
        result = self._run_forward(arithmetic, inputs, arrays, bound.kwargs)
        shape = broadcast_shape(arrays) if self._row.kind == "pointwise" else None
        numbers = _numbers_of(result, arithmetic, "result", shape)
        derivatives = [
            partial(self._gradient, number, numbers, arrays, bound.kwargs, inputs) for number in range(len(arrays))
        ]
        return tensor_of(finish(started, numbers, arithmetic.format, *derivatives, reads="both"))

    def _run_forward(
        self, arithmetic: Arithmetic, inputs: Inputs, arrays: list[NDArray], options: dict[str, Any]
    ) -> NDArray:
        """Compute the result; an observer receives the last rounding under the name of the operation."""
        observer = arithmetic.target.observer
        if observer is None:
            return self._forward(UserArithmetic(arithmetic, inputs), *arrays, **options)
        pending_events = PendingEvents(observer)
        result = self._forward(UserArithmetic(arithmetic.with_observer(pending_events), inputs), *arrays, **options)
        for number, (counts, step) in enumerate(pending_events.pending, 1):
            notify(observer, counts, self._row.name if number == len(pending_events.pending) else step)
        return result

    def _inputs(self, started: BegunOperation) -> Inputs:
        """Return the rounding of the operands of a contraction, by name."""
        if self._row.kind != "contraction":
            return {}
        inputs = dict(zip(self._row.operands, started.bound.inputs, strict=True))
        return {**inputs, GRADIENT: started.bound.place.gradient}

    def _gradient(
        self, number: int, result: NDArray, arrays: list[NDArray], options: dict[str, Any], inputs: Inputs,
        arithmetic: Arithmetic, g: NDArray,
    ) -> NDArray:  # fmt: skip
        """Return the gradient with respect to operand `number`, from the gradient of the result."""
        name, slope, shape = self._row.operands[number], self._slopes[number], arrays[number].shape
        if slope is None:
            raise ValueError(f"{arithmetic.where} has no derivative with respect to {name}, which requires a gradient.")
        gradient = slope(UserArithmetic(arithmetic, inputs), g, result, *arrays, **options)
        what = f"gradient with respect to {name}"
        if self._row.kind != "pointwise":
            return _numbers_of(gradient, arithmetic, what, shape)
        return sum_to_shape(arithmetic, _numbers_of(gradient, arithmetic, what, g.shape), shape)

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])

    def __repr__(self) -> str:
        return f"<operation {self._row.name}{self.__signature__}>"


def _on_one_device(arrays: list[NDArray]) -> list[NDArray]:
    """Return the operands on one device; scalars follow the other operands."""
    machine = device_of(*arrays)
    return [machine.to_device(array) for array in arrays]


def _numbers_of(x: Any, arithmetic: Arithmetic, what: str, shape: tuple[int, ...] | None) -> NDArray:
    """Return the result of a custom function; ValueError unless it is an array of the format with this shape."""
    format, where = arithmetic.format, f"The {what} of {arithmetic.where}"
    if not (isinstance(x, np.ndarray | np.floating) or is_on_gpu(x)) or x.dtype not in (np.float32, np.float64):
        raise ValueError(f"{where} must be an array of floats, made by its arithmetic; got {x!r}.")
    if shape is not None and x.shape != shape:
        raise ValueError(f"{where} must have the shape {shape}, got {x.shape}.")
    array = as_array(x)
    if not bounds_of(array).need_no_rounding(format):
        stranger = first_outside_format(array, format)
        if stranger is not None:
            raise ValueError(
                f"{where} contains {array[stranger]!r} at index {stranger}, which is not a number of {format}: compute "
                "it with the arithmetic in the first argument, or apply its round at the end."
            )
    return array.astype(arithmetic.target.dtype, copy=False)
