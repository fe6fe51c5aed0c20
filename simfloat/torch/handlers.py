"""Define the handlers: the ways in which an operation of PyTorch can be carried out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import increment_version

from simfloat.torch.arguments import (
    LISTS,
    Arguments,
    InsertedNumbers,
    Options,
    floating_tensors_in,
    integer_result,
    is_number,
    operands_of,
    refusal,
)
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.phases import Backward, Forward, ParameterPhase
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import (
    FORMAT_OF,
    NARROW,
    NOTHING,
    Tag,
    in_float32,
    in_type,
    is_view,
    numbers_of,
    put_tag,
    replace_tensors,
    result_type,
    tag_of,
    tensor_of,
)

#: Rules of users, by the name of the operation with its library, such as ``mylib::op``.
USERS: dict[str, Callable[..., Any]] = {}


class Handler:
    """A way to carry out an operation; `how` is its name in tables."""

    how = ""

    @property
    def is_rule(self) -> bool:
        """True if values are rounded."""
        return self.how in ("rule", "decomposition", "loop")

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of the operation, which will be written to the target that `into` describes."""
        raise ValueError(f"{type(self).__name__} carries nothing out.")

    def plain(self, func: Any, args: Arguments, options: Options) -> Any:
        """Return a preliminary result of PyTorch for an operation that waits."""
        return func(*args, **options)


class Movement(Handler):
    """Values are moved, chosen, created or compared. Only a number that is put among others is rounded."""

    how = "movement"

    def __init__(self, *, makes: bool = False, chooses: bool = False, puts_in: bool = False) -> None:
        self.makes = makes  # creates new values, which do not depend on the operands
        self.chooses = chooses  # chooses among values: a value that was chosen from a parameter is not a parameter
        self.puts_in = puts_in  # puts in single numbers, which are rounded to the format of the values around them

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch, with the tags of the operands."""
        # The fastest path, for views in backward passes and under no_grad: a tag belongs to the memory, which the view
        # shares, and no node of autograd must be noted.
        if run.is_unrecorded(func) and is_view(func):
            return func(*args, **options)  # the memory has a tag already
        operands = [] if self.makes else operands_of(run, func, args, options)
        note, format_sources = run.note(func, operands), operands
        # An optimizer creates constant tensors for its counters, which no policy rounds.
        if self.puts_in and not (self.makes and run.optimizing.optimizer is not None):
            put_in = InsertedNumbers(func, args, options)
            format_sources = put_in.target_operands
            if put_in.numbers and put_in.format is not None:
                args, options = put_in.round_arguments(run.place_of_movement(func), put_in.format)
        result = func(*args, **options)
        # A result that has a tag already shares the memory of an operand, so nothing must be added.
        if note is None and isinstance(result, torch.Tensor) and tag_of(result) is not NOTHING:
            return result  # a view of a tagged tensor
        for moved in floating_tensors_in(result if isinstance(result, LISTS) else (result,)):
            tag = tag_of(moved)
            if tag is NOTHING:
                tag = in_type(run.tag_of_moved(operands, format_sources), moved.dtype)
                tag = Tag(tag.format) if self.chooses and tag.is_weight else tag
                put_tag(moved, tag)
            if note is not None:
                note.format, note.weight = tag.format, tag.owner if tag.is_weight else None
        # The momentum of SGD begins as a clone of the gradient. This is a movement, but also the first value of a
        # moment, which the policy rounds to `optimizer_state`.
        is_copy = run.optimizing.optimizer is not None and func is torch.ops.aten.clone.default
        return run.optimizing.round_first_moment(result) if is_copy else result


class PassThrough(Handler):
    """An operation without floating-point values, such as a mark for a profiler, or an operation on integers."""

    how = "PyTorch"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch."""
        return func(*args, **options)


class Zeros(Movement):
    """Zeros without memory, which PyTorch uses for the derivative of a sign; they become ordinary zeros."""

    def __init__(self) -> None:
        super().__init__(makes=True)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the zeros."""
        return super().__call__(run, torch.ops.aten.zeros.default, args, options, into)


class Rule(Handler):
    """A rule, which computes the result from a RuleCall and the arguments; `operation` is its name in a policy."""

    how = "rule"

    #: True if the result belongs to one operation of the catalog and is rounded once.
    is_primitive = False

    #: True if gradients are converted to the format of the result's gradients before the rule; otherwise the rule does
    #: it.
    is_entered = True

    def __init__(self, operation: str, rule: Callable[..., Any]) -> None:
        self.operation, self.rule = operation, rule

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of the rule.

        PyTorch computes operations without floating-point operands, and counters of an optimizer.
        """
        operands = operands_of(run, func, args, options)
        if not operands:
            result, operands = integer_result(func, args, options)
            if not operands:
                return run.leave_to_pytorch(result, operands)
        requested_dtype = options.get("dtype")
        # For an integer result, PyTorch converts the operands before it computes.
        if requested_dtype is not None and not requested_dtype.is_floating_point:
            return run.leave_to_pytorch(func(*args, **options), operands)
        phase = run.phase(self.operation_for(args), self.in_policy_order(operands), into)
        if phase is None:
            return run.leave_to_pytorch(func(*args, **options), operands)
        dtype = options.pop("dtype", None) or self.type_of(phase, operands, args)
        call = RuleCall(phase, operands, dtype, func, run.shown, is_primitive=self.is_primitive)
        if phase.place.is_written and dtype != torch.float64 and not isinstance(phase, ParameterPhase):
            # PyTorch's kernels convert Python numbers to float32 if tensors have at most 32 bits. This includes
            # defaults that the dispatcher does not pass on. Kernels for 16-bit types on the CPU convert some numbers to
            # the dtype of the tensor.
            args, options = in_float32((*args, *omitted_defaults(func, len(args)))), in_float32(options)
            if dtype in NARROW and not phase.place.is_for_cuda:
                args, options = cast_numbers(func, args, options, dtype)
        if self.is_entered and isinstance(phase, Backward) and phase.may_narrow:
            # A gradient arrives in the format of the operation that follows in the forward pass. If an addition passed
            # it on unchanged, it is rounded here, before the formula reads it.
            args = tuple([phase.in_result_format(x) if isinstance(x, torch.Tensor) else x for x in args])
        # Rules use the memory layout of PyTorch's elementwise kernels: the layout of the first operand with the shape
        # of the result.
        options.pop("memory_format", None)
        return self.rule(call, *args, **options)

    def operation_for(self, args: Arguments) -> str:
        """Return the name of the operation."""
        return self.operation

    def in_policy_order(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the operands in the order of the operation in a policy."""
        return operands

    def type_of(self, phase: Forward, operands: list[torch.Tensor], args: Arguments) -> torch.dtype:
        """Return the dtype of the result."""
        return result_type(operands)


#: The operations for which PyTorch's CPU kernels convert a number to the dtype of the result, with the positions of
#: these arguments. Others, such as products and quotients by a number, use it as float32.
CAST_ARGUMENTS = {
    **dict.fromkeys(("add", "sub", "rsub"), (0, 1, 2)),
    **dict.fromkeys(("pow", "fmod", "remainder", "atan2", "hypot", "nextafter", "copysign"), (0, 1)),
    **dict.fromkeys(("mul", "div"), (0,)),
}


def cast_numbers(func: Any, args: Arguments, options: Options, dtype: torch.dtype) -> tuple[Arguments, Options]:
    """Return the arguments; numbers that PyTorch's CPU kernels convert to a 16-bit type are converted."""
    places = CAST_ARGUMENTS.get(func.overloadpacket.__name__)
    if places is None:
        return args, options
    args = tuple(cast_number(x, dtype) if at in places else x for at, x in enumerate(args))
    return args, {name: cast_number(x, dtype) if name == "alpha" else x for name, x in options.items()}


def cast_number(x: Any, dtype: torch.dtype) -> Any:
    """Convert a number, Python's or a 0-dimensional tensor, to a dtype; return anything else unchanged."""
    if not is_number(x) or (isinstance(x, torch.Tensor) and x.dtype == dtype):
        return x
    with without_dispatch():
        # Convert by way of float32, as PyTorch converts a double to a 16-bit type: the second rounding is part of its
        # result.
        number = torch.tensor(float(np.float32(float(x)))).to(dtype).item()
    return torch.tensor(number, dtype=torch.float64) if isinstance(x, torch.Tensor) else number


@cache
def omitted_defaults(func: Any, count: int) -> tuple[float, ...]:
    """Return the default values after `count` arguments that are numbers; PyTorch does not pass these on."""
    defaults = [argument.default_value for argument in func._schema.arguments[count:]]
    return tuple(takewhile(lambda default: isinstance(default, float), defaults))


class Decomposition(Handler):
    """A function of the operation's arguments, written in PyTorch's operations, which are then simulated."""

    how = "decomposition"

    def __init__(self, operation: str, function: Callable[..., Any], results: int = 1) -> None:
        # The first `results` values in the forward pass are results; the others are saved for the backward pass.
        self.operation, self.function, self.results = operation, function, results

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of the function, inside a composite with the name of the operation."""
        operands = operands_of(run, func, args, options)
        if not operands:
            integer_output, operands = integer_result(func, args, options)
            if not operands:
                return run.leave_to_pytorch(integer_output, operands)
        result_dtype = result_type(operands)
        # In a narrow dtype of the program, steps are computed in FP32.
        is_narrow = result_dtype in NARROW and run.simulation.place(self.operation, run.path, run.composites).is_written
        if is_narrow:
            args, options = replace_tensors(args, _to_float32), replace_tensors(options, _to_float32)
        # The operations inside are dispatched to this mode again. Autograd does not record them: it records the single
        # node of PyTorch, and the backward formula of this node has its own rule.
        with run.inside(self.operation, operands):
            result = self.function(*args, **options)
        phase = run.phase(self.operation, operands)
        if phase is None or not (phase.is_fused or is_narrow):
            return result

        def round_once(phase: Forward, x: torch.Tensor) -> torch.Tensor:
            dtype = result_dtype if is_narrow and x.dtype == torch.float32 else x.dtype
            return _round_result(RuleCall(phase, operands, dtype, func, run.shown, is_primitive=True), x)

        return self._round_at_border(round_once, phase, result)

    def _round_at_border(
        self, round_once: Callable[[Forward, torch.Tensor], torch.Tensor], phase: Forward, result: Any
    ) -> Any:
        """Round the results of a composite once, and each of its gradients in the role of its operand."""

        def round_floating(phase: Forward, x: Any) -> Any:
            return round_once(phase, x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        if not isinstance(result, list | tuple):
            return round_floating(phase, result)
        if isinstance(phase, Backward):
            # A formula returns the gradients in the order of the operands, and each has its own role.
            return tuple(round_floating(phase.to_operand(i), x) for i, x in enumerate(result))
        return (*(round_floating(phase, x) for x in result[: self.results]), *result[self.results :])


def _to_float32(x: torch.Tensor) -> torch.Tensor:
    """Convert a tensor of a narrow dtype to float32."""
    if x.dtype not in NARROW:
        return x
    wide = x.float()
    put_tag(wide, tag_of(x))
    return wide


def _round_result(call: RuleCall, x: torch.Tensor) -> torch.Tensor:
    """Return a result of a composite, rounded once."""
    call.begin()
    return call.match_operand_layout(call.tensor(call.round(x)))


class ImplicitComposite(Handler):
    """An operation that PyTorch composes of others, dispatched below autograd, for example inside a user's rule."""

    how = "decomposition"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch's decomposition; its operations are simulated."""
        with run.redispatch:
            return func.decompose(*args, **options)


class InPlace(Handler):
    """`x.op_()`, computed as `x.copy_(x.op())`."""

    def __init__(self, functional: Any, handler: Handler) -> None:
        self.functional, self.handler, self.how = functional, handler, handler.how

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the first operand, after the write."""
        target = args[0]
        if not target.is_floating_point():
            return run.leave_to_pytorch(func(*args, **options), [])
        # The tag is read before the rule runs: an addition to a parameter or to a moment is rounded as the last
        # addition of the policy.
        into = run.optimizing.moment_of(target, run.tag_of_target(target))
        # The nodes of in-place operations are numbered differently (`ForwardLog.begin`). The rule may fail before it
        # reads this, hence the `finally`.
        run.notes.in_place = True
        try:
            result = self.handler(run, self.functional, (run.parameters.read(target), *args[1:]), options, into)
        finally:
            run.notes.in_place = False
        # A rule broadcasts both operands, but PyTorch never changes the shape of the tensor that is written to.
        if result.shape != target.shape:
            shapes = f"{tuple(result.shape)} to a tensor of shape {tuple(target.shape)}"
            raise refusal(run, func, f"it writes a result of shape {shapes}; compute the result out of place.")
        run.write(target, into, result, self.is_rule)
        return target


class OutVariant(InPlace):
    """An operation with its result written to `out`."""

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return `out`, after the write."""
        out = options.pop("out")
        into = run.optimizing.moment_of(out, run.tag_of_target(out))
        run.write(out, into, self.handler(run, self.functional, args, options, into), self.is_rule)
        return out


class InPlaceMovement(Handler):
    """Values are moved, or created, into the first operand."""

    how = "movement"

    def __init__(self, *, keeps: bool = False, puts_in: bool = False, fills: bool = False) -> None:
        self.keeps = keeps  # keeps the format, as zeros and ones do
        self.puts_in = puts_in  # puts in single numbers, which are rounded to the format of the operand
        self.fills = fills  # fills the whole operand; others keep some of its values

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the first operand, with the tag of the values that were written to it."""
        target = args[0]
        if not isinstance(target, torch.Tensor) or not target.is_floating_point():
            return func(*args, **options)
        # The target is an operand only for the note, because it may require a gradient. Its values are not read.
        into, (_, *sources) = run.tag_of_target(target), operands_of(run, func, args, {})
        run.note(func, [target, *sources])
        keeps, is_partial = self.keeps, self.puts_in and not self.fills
        if self.puts_in and into.format is not None and not into.is_weight:  # a parameter is rounded below
            put_in = InsertedNumbers(func, args, options)
            if put_in.numbers and not (sources and self.fills and _is_single(target)):
                args, options = put_in.round_arguments(run.place_of_movement(func), into.format)
                keeps = True
        result = func(*args, **options)
        moved = run.tag_of_moved(sources)
        if keeps:
            moved = moved._replace(format=into.format)
        elif is_partial and sources:
            moved = moved._replace(format=run.tag_of_moved([target, *sources]).format)
        run.note_overwrite(target, into, moved)
        return result


def _is_single(x: torch.Tensor) -> bool:
    """True if a tensor is a single number, and not an element of a larger tensor."""
    return (
        not x.ndim and x.numel() * x.element_size() == x.untyped_storage().nbytes() and not getattr(x._base, "ndim", 0)
    )


class ForEach(Handler):
    """An operation on lists of tensors, one tensor after the other."""

    how = "loop"

    def __init__(self, single: Any, is_in_place: bool) -> None:
        self.single, self.is_in_place = single, is_in_place
        # In addcmul and addcdiv, the factor of a list is positional, but the factor of one tensor is a keyword.
        self.factor_at = 3 if single.__name__.startswith("addc") else -1

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the list of results; arguments that are lists contribute one element to each call."""
        count = next(len(x) for x in args if isinstance(x, list | tuple))
        rows = [[x[i] if isinstance(x, list | tuple) else x for x in args] for i in range(count)]
        named = [{k: x[i] if isinstance(x, list | tuple) else x for k, x in options.items()} for i in range(count)]
        if self.factor_at == len(args) - 1:
            named = [{"value": row.pop(), **options_of_row} for row, options_of_row in zip(rows, named, strict=True)]
        with run.redispatch:
            results = [self.single(*row, **options_of_row) for row, options_of_row in zip(rows, named, strict=True)]
        if not self.is_in_place:
            return results
        # The version of a tensor shows that it was modified. Single operations below autograd do not increase it.
        increment_version(args[0])
        return None


class UnsupportedOperation(Handler):
    """An operation without a rule, and the reason."""

    how = "refused"

    def __init__(self, remedy: str) -> None:
        self.remedy = remedy

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return PyTorch's result if neither operands nor results are floating-point; otherwise raise ValueError."""
        operands = floating_tensors_in((*args, *options.values()))
        if not operands:
            result, operands = integer_result(func, args, options)
            if not operands:
                return run.leave_to_pytorch(result, operands)
        if run.shown is not None:
            run.note(func, operands)
            return func(*args, **options)
        raise refusal(run, func, self.remedy)


class Unscaling(Handler):
    """Multiply gradients by the inverse of the scale, and round each product to `weights`."""

    how = "rule"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Write the gradients, and set `found_inf` if one of them is not finite."""
        gradients: list[torch.Tensor] = args[0]
        found_inf, inverse = args[1], args[2]
        for gradient in gradients:
            if not bool(torch.isfinite(gradient).all()):
                found_inf.fill_(1.0)
            tag = tag_of(gradient)
            arithmetic = run.simulation.place("update", tag.owner or "").in_type(FORMAT_OF[gradient.dtype]).to_unscaled
            product = arithmetic.multiply(numbers_of(gradient), numbers_of(inverse))
            gradient.copy_(tensor_of(product, gradient.dtype))
            put_tag(gradient, tag._replace(format=arithmetic.format, is_gradient=True))
