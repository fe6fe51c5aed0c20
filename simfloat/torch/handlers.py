"""The ways in which an operation of PyTorch can be carried out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np
import torch

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


class Handler:
    """A way to carry out an operation; `how` is what the table calls it."""

    how = ""

    @property
    def is_rule(self) -> bool:
        """Whether numbers are rounded."""
        return self.how in ("rule", "decomposition", "loop")

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The operation's result, to be written to what `into` tells of."""
        raise ValueError(f"{type(self).__name__} carries nothing out.")

    def plain(self, func: Any, args: Arguments, options: Options) -> Any:
        """A result of PyTorch's, to go on with where an operation waits to be carried out."""
        return func(*args, **options)


class Movement(Handler):
    """Numbers are moved, chosen, made or compared, and none is rounded but a number that is put among others."""

    how = "movement"

    def __init__(self, *, makes: bool = False, chooses: bool = False, puts_in: bool = False) -> None:
        self.makes = makes  # numbers of its own, of which the operands tell nothing
        self.chooses = chooses  # among numbers: what is chosen from a parameter is no parameter
        self.puts_in = puts_in  # single numbers, which are rounded to the format of those around them

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch, tagged as the operands are."""
        # The quickest way, for views in backward passes and under no_grad: a tag belongs to the memory, which the view
        # shares, and no node of autograd has to be noted.
        if is_view(func) and run.is_unrecorded(func):
            return func(*args, **options)  # of memory of which all is known
        operands = [] if self.makes else operands_of(run, func, args, options)
        note, format_sources = run.note(func, operands), operands
        # An optimizer makes tensors of constants for its own counting, which no policy rounds.
        if self.puts_in and not (self.makes and run.optimizing.optimizer is not None):
            put_in = InsertedNumbers(func, args, options)
            format_sources = put_in.target_operands
            if put_in.numbers and put_in.format is not None:
                args, options = put_in.round_arguments(run.place_of_movement(func), put_in.format)
        result = func(*args, **options)
        # A result that is tagged already shares the memory of an operand, so nothing is to be added.
        if note is None and isinstance(result, torch.Tensor) and tag_of(result) is not NOTHING:
            return result  # a view of what is known
        for moved in floating_tensors_in(result if isinstance(result, LISTS) else (result,)):
            tag = tag_of(moved)
            if tag is NOTHING:
                tag = in_type(run.tag_of_moved(operands, format_sources), moved.dtype)
                tag = Tag(tag.format) if self.chooses and tag.is_weight else tag
                put_tag(moved, tag)
            if note is not None:
                note.format, note.weight = tag.format, tag.owner if tag.is_weight else None
        # The momentum of SGD begins as a clone of the gradient: a movement, and yet the first value of a moment, which
        # the policy rounds to `optimizer_state`.
        is_copy = run.optimizing.optimizer is not None and func is torch.ops.aten.clone.default
        return run.optimizing.round_first_moment(result) if is_copy else result


class PassThrough(Handler):
    """An operation without numbers of its own, such as a mark for a profiler, or one on integers."""

    how = "PyTorch"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch."""
        return func(*args, **options)


class Zeros(Movement):
    """Zeros without memory, as which PyTorch has the slope of a sign: zeros like others."""

    def __init__(self) -> None:
        super().__init__(makes=True)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The zeros."""
        return super().__call__(run, torch.ops.aten.zeros.default, args, options, into)


class Rule(Handler):
    """A rule computes the result from a RuleCall and the operation's arguments; `operation` names it in a policy."""

    how = "rule"

    #: Whether the result is that of one operation of the catalog, rounded once.
    is_primitive = False

    #: Whether gradients come to the rule in the format of those of the result; if not, it brings them there itself.
    is_entered = True

    def __init__(self, operation: str, rule: Callable[..., Any]) -> None:
        self.operation, self.rule = operation, rule

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The result by the rule; PyTorch's own where no floating numbers take part, and an optimizer's counting."""
        operands = operands_of(run, func, args, options)
        if not operands:
            result, operands = integer_result(func, args, options)
            if not operands:
                return run.leave_to_pytorch(result, operands)
        requested_dtype = options.get("dtype")
        # Numbers become integers before anything is computed.
        if requested_dtype is not None and not requested_dtype.is_floating_point:
            return run.leave_to_pytorch(func(*args, **options), operands)
        phase = run.phase(self.operation_for(args), self.in_policy_order(operands), into)
        if phase is None:
            return run.leave_to_pytorch(func(*args, **options), operands)
        dtype = options.pop("dtype", None) or self.type_of(phase, operands, args)
        phase.in_type(dtype)
        if phase.place.is_written and dtype != torch.float64 and not isinstance(phase, ParameterPhase):
            # PyTorch's kernels take Python's numbers as float32 where tensors have at most 32 bits; defaults that the
            # dispatcher does not hand on are among them. Kernels of 16-bit types on the CPU bring some numbers to the
            # tensor's own type.
            args, options = in_float32((*args, *omitted_defaults(func, len(args)))), in_float32(options)
            if dtype in NARROW and not phase.place.is_for_cuda:
                args, options = cast_numbers(func, args, options, dtype)
        if self.is_entered and isinstance(phase, Backward) and phase.may_narrow:
            # A gradient arrives as the operation after this one made it. What an addition hands on unchanged is rounded
            # here, before the formula reads it.
            args = tuple([phase.in_result_format(x) if isinstance(x, torch.Tensor) else x for x in args])
        # Rules lay out their results as PyTorch's elementwise kernels do: as the first operand of that shape.
        options.pop("memory_format", None)
        call = RuleCall(phase, operands, dtype, func, run.shown, is_primitive=self.is_primitive)
        return self.rule(call, *args, **options)

    def operation_for(self, args: Arguments) -> str:
        """The operation's name."""
        return self.operation

    def in_policy_order(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The operands in the order in which a policy's operation has them."""
        return operands

    def type_of(self, phase: Forward, operands: list[torch.Tensor], args: Arguments) -> torch.dtype:
        """The result's type."""
        return result_type(operands)


#: Operations before which PyTorch's CPU kernels bring a number to the type of the result: which arguments these are.
#: Others, products and quotients by a number among them, take it as a float32 one.
CAST_ARGUMENTS = {
    **dict.fromkeys(("add", "sub", "rsub"), (0, 1, 2)),
    **dict.fromkeys(("pow", "fmod", "remainder", "atan2", "hypot", "nextafter", "copysign"), (0, 1)),
    "div": (0,),
}


def cast_numbers(func: Any, args: Arguments, options: Options, dtype: torch.dtype) -> tuple[Arguments, Options]:
    """The arguments with numbers of a 16-bit type where PyTorch's CPU kernels bring them there."""
    places = CAST_ARGUMENTS.get(func.overloadpacket.__name__)
    if places is None:
        return args, options
    args = tuple(cast_number(x, dtype) if at in places else x for at, x in enumerate(args))
    return args, {name: cast_number(x, dtype) if name == "alpha" else x for name, x in options.items()}


def cast_number(x: Any, dtype: torch.dtype) -> Any:
    """A number, Python's or a tensor without axes, as one of a type; anything else itself."""
    if not is_number(x) or (isinstance(x, torch.Tensor) and x.dtype == dtype):
        return x
    with without_dispatch():
        # By way of float32, as PyTorch converts a double to a 16-bit type: the second rounding is part of its result.
        number = torch.tensor(float(np.float32(float(x)))).to(dtype).item()
    return torch.tensor(number, dtype=torch.float64) if isinstance(x, torch.Tensor) else number


@cache
def omitted_defaults(func: Any, count: int) -> tuple[float, ...]:
    """The numbers behind so many arguments that PyTorch does not hand on, since they are the operation's defaults."""
    defaults = [argument.default_value for argument in func._schema.arguments[count:]]
    return tuple(takewhile(lambda default: isinstance(default, float), defaults))


class Decomposition(Handler):
    """A function of the operation's own arguments, written in PyTorch's operations, which are then simulated."""

    how = "decomposition"

    def __init__(self, operation: str, function: Callable[..., Any], results: int = 1) -> None:
        # So many of what it gives in the forward pass are results; what follows is kept for the backward pass.
        self.operation, self.function, self.results = operation, function, results

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The function's result, inside of a composite of the operation's name."""
        operands = operands_of(run, func, args, options)
        if not operands:
            integer_output, operands = integer_result(func, args, options)
            if not operands:
                return run.leave_to_pytorch(integer_output, operands)
        result_dtype = result_type(operands)
        # In a narrow type of the program's own, steps are taken in FP32.
        is_narrow = result_dtype in NARROW and run.keeps_own_types(self.operation)
        if is_narrow:
            args, options = replace_tensors(args, _to_float32), replace_tensors(options, _to_float32)
        # The operations inside come to this dispatch mode again. Autograd does not see them: one node is PyTorch's, and
        # its formula is a rule of its own.
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
        """Round the results of a fused composite once, and each of its gradients to the role of its operand."""

        def round_floating(phase: Forward, x: Any) -> Any:
            return round_once(phase, x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        if not isinstance(result, list | tuple):
            return round_floating(phase, result)
        if isinstance(phase, Backward):
            # A formula returns the gradients in the order of the operands, each with a role of its own.
            return tuple(round_floating(phase.to_operand(i), x) for i, x in enumerate(result))
        return (*(round_floating(phase, x) for x in result[: self.results]), *result[self.results :])


def _to_float32(x: torch.Tensor) -> torch.Tensor:
    """A tensor of a narrow type in float32."""
    if x.dtype not in NARROW:
        return x
    wide = x.float()
    put_tag(wide, tag_of(x))
    return wide


def _round_result(call: RuleCall, x: torch.Tensor) -> torch.Tensor:
    """A result of a fused composite, rounded once."""
    call.begin()
    return call.match_operand_layout(call.tensor(call.round(x)))


class ImplicitComposite(Handler):
    """An operation that PyTorch makes of others, met below autograd, as inside of a user's rule."""

    how = "decomposition"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch's decomposition, whose operations are simulated."""
        with run.redispatch:
            return func.decompose(*args, **options)


class InPlace(Handler):
    """`x.op_()` is `x.copy_(x.op())`."""

    def __init__(self, functional: Any, handler: Handler) -> None:
        self.functional, self.handler, self.how = functional, handler, handler.how

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The first operand, written to."""
        target = args[0]
        if not target.is_floating_point():
            return run.leave_to_pytorch(func(*args, **options), [])
        # Asked before the rule runs: an addition to a parameter or to a moment is rounded as the policy's last
        # addition.
        into = run.optimizing.moment_of(target, run.tag_of_target(target))
        # The nodes of operations in place are numbered otherwise (`ForwardLog.begin`). The rule may fail before it
        # reads this, hence the finally.
        run.notes.in_place = True
        try:
            result = self.handler(run, self.functional, (run.parameters.read(target), *args[1:]), options, into)
        finally:
            run.notes.in_place = False
        # A rule broadcasts both operands, but PyTorch never changes the shape of the tensor that is written to.
        if result.shape != target.shape:
            shapes = f"{tuple(result.shape)} to a tensor of shape {tuple(target.shape)}"
            raise refusal(run, func, f"it writes a result of shape {shapes}; compute the result by itself.")
        run.write(target, into, result, self.is_rule)
        return target


class OutVariant(Handler):
    """An operation whose result is written to `out`."""

    def __init__(self, functional: Any, handler: Handler) -> None:
        self.functional, self.handler, self.how = functional, handler, handler.how

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """`out`, written to."""
        out = options.pop("out")
        into = run.optimizing.moment_of(out, run.tag_of_target(out))
        run.write(out, into, self.handler(run, self.functional, args, options, into), self.is_rule)
        return out


class InPlaceMovement(Handler):
    """Numbers are moved, or made, into the first operand."""

    how = "movement"

    def __init__(self, *, keeps: bool = False, puts_in: bool = False, fills: bool = False) -> None:
        self.keeps = keeps  # the format, as zeros and ones do
        self.puts_in = puts_in  # single numbers, which are rounded to the format of the operand
        self.fills = fills  # all of the operand; others leave some of its numbers

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The first operand, of which then is known what is known of what was written to it."""
        target = args[0]
        if not isinstance(target, torch.Tensor) or not target.is_floating_point():
            return func(*args, **options)
        # The target is an operand only for the note: it may want a gradient. Its numbers are not read.
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
    """Whether a tensor is one number by itself, and no element of others."""
    return (
        not x.ndim and x.numel() * x.element_size() == x.untyped_storage().nbytes() and not getattr(x._base, "ndim", 0)
    )


class ForEach(Handler):
    """An operation on lists of tensors, one after the other."""

    how = "loop"

    def __init__(self, single: Any, is_in_place: bool) -> None:
        self.single, self.is_in_place = single, is_in_place
        # Of addcmul and addcdiv, a list's factor stands where that of one tensor has a name.
        self.factor_at = 3 if single.__name__.startswith("addc") else -1

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The list of results; what is given as a list is given to each its own."""
        count = next(len(x) for x in args if isinstance(x, list | tuple))
        rows = [[x[i] if isinstance(x, list | tuple) else x for x in args] for i in range(count)]
        named = [{k: x[i] if isinstance(x, list | tuple) else x for k, x in options.items()} for i in range(count)]
        if self.factor_at == len(args) - 1:
            named = [{"value": row.pop(), **options_of_row} for row, options_of_row in zip(rows, named, strict=True)]
        with run.redispatch:
            results = [self.single(*row, **options_of_row) for row, options_of_row in zip(rows, named, strict=True)]
        return None if self.is_in_place else results


class UnsupportedOperation(Handler):
    """An operation without a rule, and the reason."""

    how = "refused"

    def __init__(self, remedy: str) -> None:
        self.remedy = remedy

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """PyTorch's own result where neither operands nor results are floating numbers; else ValueError."""
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
    """Gradients are multiplied by the inverse of the scale, each product rounded to `weights`."""

    how = "rule"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Nothing: gradients are written to, and `found`, which says whether one of them is not finite."""
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
