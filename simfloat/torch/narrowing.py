"""Give values the formats that they have under autocast, although the tensors are float32.

The operands of some functions are rounded to one format, so that FP32 data do not widen the results. Upcasts of a
program, such as x.float(), give their values the format FP32. These wrappers are for policies under which results take
the widest format of their operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import cache, partial, wraps
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_map

from simfloat.arithmetic.operations import round_array
from simfloat.arithmetic.target import Target, WithPath, wants
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.kernels.rounding.events import wants_optional_counts
from simfloat.policy import Policy
from simfloat.policy.overrides import COMPOSED
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.place import Place
from simfloat.torch.forward_log import is_recomputing
from simfloat.torch.open_run import active_run, is_transformed, without_dispatch
from simfloat.torch.phases import Backward
from simfloat.torch.tensors import NARROW, WIDE, Narrow, Tag, numbers_of, put_tag, stored_format, tag_of, tensor_of

#: The functions of recurrent layers and of their cells.
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")

#: The means, which are on no list of autocast; other functions with an argument `dtype` are on the list of FP32.
MEANS = ("mean", "nanmean")

#: The functions on lists of policies without a kernel in PyTorch. PyTorch composes them of other operations, and has a
#: kernel for each mode of `interpolate`.
LISTED = (
    *((torch.nn.functional, name) for name in (*COMPOSED, "interpolate")),
    (torch, "cosine_similarity"),
)

#: The functions that drop whole channels; other dropouts create their factors in the form of their operand.
CHANNEL_DROPOUTS = (
    "feature_dropout", "feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_",
)  # fmt: skip


class StraightThroughRounding(torch.autograd.Function):
    """A rounding by an arithmetic; gradients pass unchanged."""

    @staticmethod
    @in_usual_environment
    def forward(context: Any, x: torch.Tensor, arithmetic: Arithmetic | ProgramCast) -> torch.Tensor:
        """Return the values, rounded."""
        rounded = tensor_of(arithmetic.round(numbers_of(x)), x.dtype)
        put_tag(rounded, Tag(arithmetic.format))
        return rounded

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient."""
        return g, None


class Downcast(StraightThroughRounding):
    """(x, arithmetic, run, place) -> x rounded by a cast of the program; gradients pass unchanged.

    The note tells the format in which autograd adds the gradients of x.
    """

    @staticmethod
    def forward(context: Any, x: torch.Tensor, arithmetic: ProgramCast, run: Any, place: Place) -> torch.Tensor:  # type: ignore[override]
        """Return the values, rounded."""
        note = run.notes.begin(place, (x,))
        if note is not None:
            note.format, note.is_one_call = arithmetic.format, True
        return StraightThroughRounding.forward(context, x, arithmetic)

    @staticmethod
    def backward(context: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:  # type: ignore[override]
        """Return the gradient."""
        return g, None, None, None


def has_upcasts(run: Any) -> bool:
    """True if the policy keeps an upcast of the program: results have the widest format, or FP32 after an upcast."""
    return takes_formats(run) or run.simulation.place("multiply", run.path).upcast is not None


def takes_formats(run: Any) -> bool:
    """True if additions take the widest format of their operands, and linear layers have a given format."""
    others, products = (run.simulation.place(name, run.path) for name in ("multiply", "linear"))
    return others.is_widest and not products.is_widest


def linear_of_matrix(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a linear layer: its input becomes a matrix, so that PyTorch adds the bias in the same operation."""

    @wraps(function)
    def call(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        run = active_run()
        if run is None or bias is None or not isinstance(x, torch.Tensor) or x.ndim == 2 or not takes_formats(run):
            return function(x, weight, bias)
        # PyTorch has one operation for a matrix with a bias (addmm). For other shapes it may add the bias separately,
        # which under such a policy is an addition of a narrow and a wide operand, with a wide result.
        rows = function(x.reshape(-1, x.shape[-1]) if x.ndim else x, weight, bias)
        return rows.reshape(*x.shape[:-1], -1)

    return call


def with_autocast_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of a recurrent layer: initial states are rounded to the format of its products.

    The input is put in the order of the steps, so that the addition of a bias is part of a linear layer.
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        run = active_run()
        if run is None or not takes_formats(run):
            return function(*(args if run is None else autocast_operands(run, function, args)), **options)
        # For sequences of several lengths, an integer tensor with the batch sizes comes before the states.
        at = 2 if isinstance(args[1], torch.Tensor) and not args[1].is_floating_point() else 1
        # Initial states are usually FP32 data. Without this rounding the additions of the first step would be wide,
        # while they are narrow with autocast.
        states = args[at]
        if isinstance(states, tuple):
            narrow: Any = tuple(round_state(run, x) for x in states)
        else:
            narrow = round_state(run, states)
        x, others = args[0], args[at + 1 :]
        if x.ndim < 3 or at == 2:
            return function(*args[:at], narrow, *others, **options)
        is_turned = bool(others[-1])  # (N, L, inputs)
        steps = (x.transpose(0, 1) if is_turned else x).contiguous()
        outputs, *ends = function(steps, narrow, *others[:-1], False, **options)
        return (outputs.transpose(0, 1) if is_turned else outputs, *ends)

    return call


def autocast_operands(run: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operands of a recurrent layer as the program's autocast casts them: all operands of an LSTM are cast.

    An LSTM is one operation there, of oneDNN or cuDNN. For other layers, and for LSTMs with projections or sequences of
    several lengths, autocast casts only products on a CPU, and does this itself.
    """
    is_whole = function.__name__ == "lstm" and not isinstance(args[1], torch.Tensor)
    device = args[0].device.type
    if not (is_whole and torch.is_autocast_enabled(device) and run.simulation.place("linear", run.path).is_written):
        return args
    x, (h, c), parameters, *others = args
    if h.shape != c.shape:
        return args
    dtype = torch.get_autocast_dtype(device)
    x, h, c, *parameters = (t.to(dtype) if t.dtype == torch.float32 else t for t in (x, h, c, *parameters))
    return x, (h, c), parameters, *others


def round_state(run: Any, x: torch.Tensor) -> torch.Tensor:
    """Round a state to the format that a recurrent layer uses."""
    place = run.simulation.place("linear", run.path)
    products = (place.without_observer if is_recomputing() else place).forward
    return (
        x
        if tag_of(x).format == products.format
        else StraightThroughRounding.apply(x, products.with_operation("cast_input"))
    )


def listed_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of `LISTED`. If the policy names a function that PyTorch composes, it is a composite.

    If the function is on a list of FP32, its operands in 16 bits are converted to FP32, as autocast does.
    """
    name = function.__name__

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        run: Any = active_run()
        if run is None or name not in operations_in(run.simulation.policy):
            return function(*args, **options)
        place = run.simulation.place(name, run.path, run.composites)
        if place.recipe.activations == FP32 and takes_formats(run) and not is_transformed():
            args, options = tree_map(partial(as_wide, run), (args, options))
        with run.part_of(name) if name in COMPOSED else nullcontext():
            return function(*args, **options)

    return call


@cache
def operations_in(policy: Policy) -> frozenset[str]:
    """Return the operations that overrides of the policy name."""
    return frozenset(name for override in policy.overrides for name in override.operations)


def as_wide(run: Any, x: Any) -> Any:
    """Return a tensor in 16 bits in FP32, and anything else unchanged."""
    if not isinstance(x, torch.Tensor) or x.dtype not in WIDE or stored_format(x).precision >= FP32.precision:
        return x
    if not torch.is_grad_enabled():
        return wide_copy(run, x, None)
    return Upcast.apply(x, run, run.place_of_movement(torch.ops.aten._to_copy.default), None)


def dropout_in_operand_format(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that multiplies an operand by random factors: the factors have the format of the operand."""

    @wraps(function)
    def call(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        run = active_run()
        if run is None:
            return function(x, *args, **options)
        # Channel dropout creates its factors as new values without a relation to x. As data they would be FP32, and the
        # product would be wide.
        before = run.constant_format
        run.constant_format = tag_of(x).format
        try:
            return function(x, *args, **options)
        finally:
            run.constant_format = before

    return call


def cast_gradient(way: Backward, g: torch.Tensor, format: Format | None = None) -> torch.Tensor:
    """Return a gradient in the format of its operand, as autograd casts it; `format` if it is given."""
    before, arithmetic = tag_of(g), way.arithmetic(())
    arithmetic = arithmetic if format is None else arithmetic.in_format(format)
    if before.format == arithmetic.format:
        return g
    if before.events is not None:
        before.events.release()
    if torch.is_grad_enabled():
        return StraightThroughRounding.apply(g, arithmetic)
    with without_dispatch():
        rounded = tensor_of(arithmetic.round(numbers_of(g)), g.dtype)
    put_tag(rounded, way.tag(arithmetic.format, ()))
    return rounded


class Upcast(torch.autograd.Function):
    """(x, run, place, what x is) -> x in FP32; its gradient is rounded to the format of x, as autograd casts it."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, run: Any, place: Place, before: Narrow | None) -> torch.Tensor:
        """Return the values."""
        context.set_materialize_grads(False)
        context.run, context.note = run, run.notes.begin(place, (x,))
        wide = wide_copy(run, x, before)
        if context.note is not None:
            context.note.format, context.note.is_one_call = FP32, True
        return wide

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: torch.Tensor | None) -> tuple[torch.Tensor | None, None, None, None]:
        """Return the gradient, rounded."""
        if g is None or active_run() is None:
            return g, None, None, None
        return cast_gradient(Backward(context.note, context.run.simulation, None).to_operand(0), g), None, None, None


def wide_copy(run: Any, x: torch.Tensor, narrow: Narrow | None) -> torch.Tensor:
    """Return a copy of values with the format FP32, in other memory, because tags belong to memory.

    `narrow` is their origin if the program may convert them back to 16 bits, otherwise None.
    In products, the copy of a parameter is treated as the parameter.
    """
    tag = tag_of(x)
    with without_dispatch():
        copy = run.parameters.read(x).clone(memory_format=torch.preserve_format)
    put_tag(copy, Tag(FP32, owner=tag.owner if tag.is_weight else None, is_weight=tag.is_weight, narrow=narrow))
    return copy


def upcasts(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a conversion of tensors: an upcast to float32 gives the values of its result the format FP32.

    The tensor is float32 already. It would be a result in 16 bits under autocast, and the conversion would widen it. If
    the values are wide because of an upcast in the same module, the conversion returns to 16 bits, because programs
    write `x.to(dtype)` with the dtype of their input.
    """

    @wraps(method)
    def call(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        result = method(x, *args, **options)
        run: Any = active_run()
        # In an analysis, a copy of the program runs in float64, and conversions to float32 leave values in float64.
        if run is None or not isinstance(result, torch.Tensor) or result.dtype not in WIDE:
            return result
        targets, is_float = (*args, *options.values()), method.__name__ == "float"
        if not (is_float or any(t is torch.float32 or isinstance(t, torch.Tensor) for t in targets)):
            return result  # a conversion to another device or layout
        if is_transformed() or not has_upcasts(run):
            return result
        tag = tag_of(result)
        narrow = _narrower_format(run, tag, targets)
        if narrow is not None and not is_float:
            return _narrow(run, result, narrow)
        if not x.is_floating_point() or not is_float and not any(map(_has_float32, targets)):
            return result
        before = _before(run, x, tag, is_float)
        if before is None:
            return result
        if not torch.is_grad_enabled():
            return wide_copy(run, result, before)
        return Upcast.apply(result, run, run.place_of_movement(torch.ops.aten._to_copy.default), before)

    return call


def with_requested_upcast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a softmax, a sum or a norm: `dtype=torch.float32` is an upcast of the operand."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        run = active_run()
        is_requested = run is not None and any(x is torch.float32 for x in (*args, *options.values()))
        if run is None or not is_requested:
            return function(*args, **options)
        name = "" if args else next(iter(options.keys() & {"input", "x", "A"}))
        x = args[0] if args else options[name]
        # On a CPU, PyTorch converts the operand of softmax first. On a GPU, the kernel converts it.
        is_converted = x.dtype in NARROW and "softmax" in function.__name__
        is_listed = takes_formats(run) and function.__name__ not in MEANS
        if not is_converted and (is_listed or not has_upcasts(run)):
            return function(*args, **options)
        return function(x.float(), *args[1:], **options) if args else function(**{**options, name: x.float()})

    return call


def _before(run: Any, x: torch.Tensor, tag: Tag, is_float: bool) -> Narrow | None:
    """Return the origin of values that the program converts to float32; None for a conversion without effect."""
    # `weight.to(x.dtype)` is not an upcast: in a float32 model, x.dtype is float32 also for results in 16 bits.
    if tag.is_gradient or tag.narrow is not None or tag.is_weight and not is_float:
        return None
    if tag.format is not None and tag.format.precision < FP32.precision:
        return Narrow(tag.format, run.path)
    # Data and embeddings are in FP32. Without the upcast, results of them would have the format of results.
    wide = run.simulation.place("multiply", run.path).upcast
    is_data = wide is not None and (tag.format is not None or x.dtype == torch.float32)
    return Narrow(wide.narrow.recipe.activations, run.path, not is_float) if is_data else None


class ProgramCast(NamedTuple):
    """A conversion that the program makes, which no role of the policy rounds; an observer counts it as "cast"."""

    target: Target

    @property
    def format(self) -> Format:
        """The format of the results."""
        return self.target.format

    def round(self, x: NDArray) -> NDArray:
        """Return the values, rounded."""
        return round_array(x, self.target)

    @classmethod
    def at(cls, place: Place, format: Format, rounding: Rounding = nearest_even, phase: str = "forward") -> ProgramCast:
        """Return the conversion to a format at a place."""
        observer, counts = place.observer, None
        if observer is not None and wants(observer, place.path, phase):
            counts = WithPath(observer, place.path, phase, wants_optional_counts(observer))
        return cls(Target(format, rounding, np.float32, None, counts, "cast"))


def _narrow(run: Any, x: torch.Tensor, format: Format) -> torch.Tensor:
    """Return values rounded to the format that they had before an upcast."""
    place = run.place_of_movement(torch.ops.aten._to_copy.default)
    place = place.without_observer if is_recomputing() else place
    rounding = place.recipe.rounding
    rounding = nearest_even if rounding.is_stochastic else rounding
    cast, tag = ProgramCast.at(place, format, rounding), tag_of(x)
    rounded: torch.Tensor
    if torch.is_grad_enabled():
        rounded = Downcast.apply(x, cast, run, run.in_operand_types(place, (x,)))
    else:
        rounded = StraightThroughRounding.apply(x, cast)
    if tag.is_weight:  # in products, a cast parameter is treated as the parameter
        put_tag(rounded, Tag(format, owner=tag.owner, is_weight=True))
    return rounded


def _narrower_format(run: Any, tag: Tag, targets: Iterable[Any]) -> Format | None:
    """Return the format to which a conversion to these types and tensors rounds FP32 values; None if it does not."""
    if tag.is_gradient or tag.format is not None and tag.format.precision < FP32.precision:
        return None
    # In a program in 16 bits, parameters have the type of results; with autocast, they are FP32.
    if tag.is_weight and tag.narrow is None and not takes_formats(run):
        return None
    for target in targets:
        if isinstance(target, torch.Tensor) and stored_format(target).precision < FP32.precision:
            return stored_format(target)
        # This is `x.to(y.dtype)`: y has 16-bit values, of which the same module has computed an upcast.
        if target is torch.float32 and tag.narrow is not None and tag.narrow.path == run.path:
            return tag.narrow.format
    return None


def _has_float32(type_or_tensor: Any) -> bool:
    """True for float32, and for a tensor whose values have the format FP32."""
    if isinstance(type_or_tensor, torch.Tensor):
        return stored_format(type_or_tensor).precision >= FP32.precision
    return type_or_tensor is torch.float32
