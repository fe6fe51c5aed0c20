"""Find the handler of an operation of PyTorch; `rule` adds rules of users."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import torch
from torch._library.custom_ops import OPDEFS

from simfloat.arithmetic.catalog import Kind, Operation, kind_of, register
from simfloat.torch.arguments import COMPLEX, NUMBER_ARGUMENTS, SPARSE
from simfloat.torch.attention import ATTENTION, Attention
from simfloat.torch.formula import CompositeGradients, Formula
from simfloat.torch.handlers import (
    USERS,
    Decomposition,
    ForEach,
    Handler,
    ImplicitComposite,
    InPlace,
    InPlaceMovement,
    Movement,
    OutVariant,
    PassThrough,
    Rule,
    Unscaling,
    UnsupportedOperation,
    Zeros,
)
from simfloat.torch.rules import (
    activations,
    contractions,
    images,
    linalg,
    losses,
    movement,
    norms,
    pointwise,
    pooling,
    process_groups,
    quantization,
    reductions,
    scattering,
    spectra,
)
from simfloat.torch.rules.movement import CHOOSING, FILLING, KEEPING, MAKING, MOVEMENT, OVERWRITING

Function = TypeVar("Function", bound=Callable[..., Any])

_aten = torch.ops.aten

#: The message for operations without a rule for which no other reason is known.
REMEDY = (
    'give it a rule by @simfloat.torch.rule("{name}"), a function of its own arguments that is written in PyTorch\'s '
    "operations; or write the module in other operations."
)

#: Advice for operations with one of these words in their names.
REMEDIES = {
    ("sparse", "coo"): SPARSE,
    ("renorm",): (
        "it overwrites a table while the model runs; leave max_norm out of nn.Embedding, and shorten rows under "
        "no_grad after the optimizer's step."
    ),
    ("_thnn_fused",): (
        "PyTorch has one kernel for the cells of this layer on a GPU; use model.cpu() for sequences of several lengths "
        "and for an LSTM with projections."
    ),
    ("fft", "complex", "polar", "::linalg_eig"): COMPLEX,
    ("_fake_quantize_learnable",): (
        "it learns its scale by a special formula; write it in operations, such as x + (y - x).detach()."
    ),
    ("quantize_per_", "dequantize"): (
        "its results are integers with a scale; torch.fake_quantize_per_tensor_affine and "
        "fake_quantize_per_channel_affine return the values that these represent."
    ),
}

#: Operations that write to an operand in addition to their result: random factors, running statistics and values that
#: follow from them.
WRITING = (
    "rrelu_with_noise",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "_fused_moving_avg_obs_fq_helper",
)

#: Operations on internal values of PyTorch, which no policy rounds.
PLAIN = ("_amp_update_scale_",)

RULE_MODULES = (
    activations, contractions, images, linalg, losses, movement, norms, pointwise, pooling, quantization, reductions,
    scattering, spectra,
)  # fmt: skip

RULES: dict[str, Handler] = {
    ATTENTION: Attention(),
    "_efficientzerotensor": Zeros(),
    **{
        name: pointwise.PointwiseRule(*row, name in pointwise.PRIMITIVES)
        for name, row in pointwise.POINTWISE_FORMULAS.items()
    },
    **{
        name: pointwise.SelectionRule(operation, getattr(_aten, name.partition(".")[0]))
        for name, operation in pointwise.SELECTIONS.items()
    },
    "nan_to_num": pointwise.WithoutInfinities("clip", _aten.nan_to_num),
    **pointwise.FORMULAS,
    "_amp_foreach_non_finite_check_and_unscale_": Unscaling(),
    **{name: rule for module in RULE_MODULES for name, rule in module.TABLE.items()},
}


def name_operation(name: str, kind: Kind) -> None:
    """Register the name of an operation of PyTorch, or of a user's rule, so that policies can use it.

    A name that is registered already stays unchanged.
    """
    if kind_of(name) is None:
        register(Operation(name, ("x",), kind, "An operation of PyTorch models."), __name__)


# When this module is imported, policies can also name the operations that exist only in PyTorch.
for _handler in RULES.values():
    if isinstance(_handler, Decomposition | Rule):
        is_composite = isinstance(_handler, Decomposition | Formula | CompositeGradients)
        name_operation(_handler.operation, "composite" if is_composite else "pointwise")
name_operation(quantization.ScaledProduct.operation, "contraction")


#: Handlers by the identity of the operation. Each lookup in the cache of `handler_of` calls the hash of the operation,
#: which is a Python function. That cache keeps the operations alive, so that their identities are not reused.
HANDLERS: dict[int, Handler] = {}


@cache
def handler_of(func: Any) -> Handler:
    """Return the handler of an operation. Without a rule, this is a handler that raises an error."""
    handler = HANDLERS[id(func)] = _find_handler(func)
    return handler


def _find_handler(func: Any) -> Handler:
    if not isinstance(func, torch._ops.OpOverload):
        return UnsupportedOperation("it is not an operation of a library, but a higher-order operator.")
    space, name, overload = func.namespace, func.overloadpacket.__name__, func._overloadname
    if f"{space}::{name}" in USERS:
        return Decomposition(name, USERS[f"{space}::{name}"])
    # Functions of PyTorch that consist of its other operations.
    if space == "torch_nn" and f"{space}::{name}" in OPDEFS:
        return Decomposition("cross_entropy", OPDEFS[f"{space}::{name}"]._init_fn)
    if space == "profiler" or name in PLAIN:
        return PassThrough()
    if space == "c10d" and name in process_groups.TABLE:
        return process_groups.TABLE[name]
    handler = _handler_in_tables(name, overload, func._schema.is_mutable) if space == "aten" else None
    # An overload with `out` has the name of the movement.
    if isinstance(handler, Movement) and func._schema.is_mutable:  # the operation may write to a parameter
        handler = _derived_handler(func, name) or handler
    return (
        handler
        or _derived_handler(func, name)
        or _composite_handler(func)
        or UnsupportedOperation(remedy_for(f"{space}::{name}"))
    )


def forget() -> None:
    """Clear the cache of handlers, after a rule was added."""
    # With the cache, the search costs no time: there is one entry for each overload that a program uses.
    HANDLERS.clear()
    handler_of.cache_clear()


def remedy_for(name: str) -> str:
    """Return advice for an operation without a rule."""
    for words, remedy in REMEDIES.items():
        if any(word in name for word in words):
            return remedy
    return REMEDY.format(name=name)


def _handler_in_tables(name: str, overload: str, is_mutable: bool) -> Handler | None:
    """Return the handler in the tables; rules return results and do not write to operands."""
    for key in (f"{name}.{overload}", name):
        if key in RULES and (not is_mutable or name in WRITING or name.startswith("_amp_")):
            return RULES[key]
        if key in MAKING:
            return Movement(makes=True, puts_in=name in NUMBER_ARGUMENTS)
        if key in MOVEMENT:
            return Movement(chooses=key in CHOOSING, puts_in=name in NUMBER_ARGUMENTS)
        if key in OVERWRITING:
            puts_in = name.removesuffix("_") in NUMBER_ARGUMENTS
            return InPlaceMovement(keeps=key in KEEPING, puts_in=puts_in, fills=key in FILLING)
    return None


def _composite_handler(func: Any) -> Handler | None:
    """Return a handler for an operation that PyTorch defines only by other operations; otherwise None."""
    with suppress(RuntimeError):  # operations that exist only in TorchScript are never dispatched
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            return ImplicitComposite()
    return None


def _on_lists(name: str) -> Handler | None:
    """Return the handler of an operation on lists of tensors."""
    single, is_in_place = getattr(_aten, name, None), name.endswith("_")
    if single is not None:
        return ForEach(single, is_in_place)
    functional = getattr(_aten, name.removesuffix("_"), None)
    if not is_in_place or functional is None:
        return None
    to_out = getattr(functional, "out", None)

    def write_result(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if to_out is not None:
            return to_out(x, *args, **options, out=x)
        return x.copy_(functional(x, *args, **options))

    return ForEach(write_result, True)


def _derived_handler(func: Any, name: str) -> Handler | None:
    """Derive a handler from the handler of another operation: on lists, in place, or written to `out`."""
    if func.namespace != "aten":
        return None
    if name == "rrelu_with_noise_":
        return InPlace(_aten.rrelu_with_noise.default, RULES["rrelu_with_noise"])
    if name.startswith("_foreach_"):
        return _on_lists(name.removeprefix("_foreach_"))
    if not func._schema.is_mutable:
        return None
    names = [argument.name for argument in func._schema.arguments if argument.is_out]
    base = getattr(_aten, name if names else name.removesuffix("_"), None)
    if base is None or (names and names != ["out"]) or not (names or name.endswith("_")):
        return None
    functional = _functional_overload(base, func)
    handler = None if functional is None else handler_of(functional)
    if handler is None or isinstance(handler, UnsupportedOperation):
        return None
    return OutVariant(functional, handler) if names else InPlace(functional, handler)


def _functional_overload(base: Any, func: Any) -> Any:
    """Return the overload of `base` that has the arguments of `func`, without `out`, and writes to none of them.

    Functions that create tensors may take a type as an additional argument: then this is the overload of the same name,
    or otherwise the default. If no overload fits, return None.
    """
    types, name = _types(func), func._overloadname.removesuffix("out").removesuffix("_")
    overloads = [
        each for each in (getattr(base, overload) for overload in base.overloads()) if not each._schema.is_mutable
    ]
    same = [each for each in overloads if _types(each) == types]
    named = [each for overload_name in (name, "default") for each in overloads if each._overloadname == overload_name]
    return next(iter((*same, *named)), None)


def _types(func: Any) -> list[str]:
    """Return the types of the arguments of an operation, except the arguments that receive the result."""
    return [str(argument.type) for argument in func._schema.arguments if not argument.is_out]


def rule(name: str) -> Callable[[Function], Function]:
    """Register a function as the rule of an operation, in place of the existing rule if there is one.

    The function takes the arguments of the operation and returns its result. It is written in operations of PyTorch,
    which are then simulated instead of the operation. If another operation computes the derivative of the operation,
    that one also needs a rule. Example::

        @simfloat.torch.rule("mylib::swish")
        def swish(x):
            return x * x.sigmoid()

    Parameters:
        name: the name of the operation with its library, such as ``"mylib::op"``.

    Returns:
        A decorator that registers the function and returns it unchanged.

    Raises:
        ValueError: if `name` does not contain a library; if the decorated object is not callable.
    """
    if not isinstance(name, str) or name.count("::") != 1 or not all(name.split("::")):
        raise ValueError(f"name must be the name of an operation with its library, such as 'mylib::op'; got {name!r}.")

    def register(function: Function) -> Function:
        if not callable(function):
            raise ValueError(f"The rule of {name} is a function of its arguments, got {function!r}.")
        name_operation(name.partition("::")[2], "composite")
        USERS[name] = function
        forget()
        return function

    return register
