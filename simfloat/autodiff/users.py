"""Operations of users, which policies and observers know by name: primitives with derivatives, and composites."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, getdoc, isfunction, signature
from typing import Any

from simfloat.arithmetic.catalog import Kind, Operation, register
from simfloat.autodiff.primitive import Primitive, Slope
from simfloat.autodiff.tensor import compose
from simfloat.autodiff.variable import Variable

#: What an operation of a user can be.
KINDS = ("pointwise", "reduction", "contraction", "composite")


def operation(
    *derivatives: Slope | None, kind: Kind = "pointwise", name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function below becomes an operation of tensors that obeys policies as the package's own do.

    The function takes ``(u, *operands, **options)``: the arithmetic of the place where it runs
    (:class:`~simfloat.autodiff.user_arithmetic.UserArithmetic`), one array for each operand, and options, which are
    keyword-only. There is a derivative for each operand: a function ``(u, g, y, *operands, **options)`` of the backward
    pass's arithmetic, the gradient `g` of the result `y`, and the same again; None where there is none::

        def swish_slope(u, g, y, x):
            s = u.sigmoid(x)
            return u.multiply(g, u.fma(y, u.subtract(1, s), s))

        @sf.operation(swish_slope)
        def swish(u, x):
            "x * sigmoid(x)."
            return u.multiply(x, u.sigmoid(x))

        with sf.simulate("bf16-standard"):
            y = swish(sf.Tensor([1.0, 2.0], requires_grad=True))

    What these functions return are results of `u`, or taken from such: numbers of ``u.format``. Kinds are

    * ``"pointwise"``: operands broadcast; gradients have the shape of the result, and are summed to the operand's;
    * ``"reduction"``: any shapes; gradients have the operand's;
    * ``"contraction"``: the same, and ``u.matmul`` rounds operands to the policy's `compute`;
    * ``"composite"``: a function of tensors, made of operations that have derivatives. It takes no `u`, and has none of
      its own.

    Overrides, observers and random streams know the operation by its name, by default the function's. Defined again, as
    in a notebook, it takes the place of the old one. It is pickled by reference, as functions are.

    Raises ValueError for an unknown kind, a name that another operation has, and a number of derivatives that is not
    that of the operands; when it runs, for results that are no numbers of the format or of another shape.
    """
    if kind not in KINDS:
        raise ValueError(f"The kind of an operation is one of {', '.join(KINDS)}; got {kind!r}.")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not isfunction(function):
            raise ValueError(
                f"Write @simfloat.operation(...), its derivatives in parentheses, above a function; got {function!r}."
            )
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
    """The names of the parameters that are not keyword-only."""
    parameters = signature(function).parameters.values()
    if any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in parameters):
        raise ValueError(f"The operands and options of an operation are known by name; {function.__name__} takes any.")
    return tuple(p.name for p in parameters if p.kind is not Parameter.KEYWORD_ONLY)


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
    """The function, whose operations are parts of the composite `name`."""

    @wraps(function)
    def run(*operands: Any, **options: Any) -> Any:
        values = [*operands, *options.values()]
        tensors = [i for i, value in enumerate(values) if isinstance(value, Variable)]

        def body(*inside: Variable) -> Any:
            given = dict(zip(tensors, inside, strict=True))
            now = [given.get(i, value) for i, value in enumerate(values)]
            return function(*now[: len(operands)], **dict(zip(options, now[len(operands) :], strict=True)))

        return compose(name, body, *(values[i] for i in tensors))

    return run
