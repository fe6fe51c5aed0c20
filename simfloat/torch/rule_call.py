"""One operation of PyTorch while it is carried out: the arithmetic that a rule computes with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.target import carrier_of
from simfloat.formats import FP32, Format
from simfloat.simulation.arithmetic import Arithmetic, Elementwise, Input
from simfloat.simulation.formulas import Rounded
from simfloat.simulation.inside import CompositeArithmetic, WindowAxis, add_rows, spread_gradient
from simfloat.simulation.place import Place
from simfloat.torch.phases import Backward, CompleteGradient, Forward, ParameterPhase
from simfloat.torch.run_context import Shown
from simfloat.torch.tensors import (
    FORMAT_OF,
    NARROW,
    Numbers,
    Tag,
    in_type,
    match_layout,
    numbers_of,
    put_tag,
    result_type,
    tag_of,
    tensor_of,
)


class RuleCall(Elementwise):
    """What a rule computes with: every result is rounded once, as the policy says where the operation runs.

    A rule says which `shape` its result will have, before it computes anything: in the backward pass it tells whose
    gradient that is. Operands are arrays, tensors and numbers.
    """

    def __init__(
        self, phase: Forward, operands: Sequence[torch.Tensor], dtype: torch.dtype, name: object, shown: Shown | None,
        *, is_primitive: bool = False,
    ) -> None:  # fmt: skip
        self.phase, self.operands, self.dtype, self.name, self._shown = phase, operands, dtype, name, shown
        self.arithmetic: Arithmetic
        phase.in_type(dtype)
        # In a narrow type of the program's own, an operation of several steps computes in FP32 and rounds its result.
        # The addition to `.grad` is a single step, so that an observer receives how many of its sums lose an addend.
        is_step = is_primitive or isinstance(phase, CompleteGradient) and phase.is_addition
        self._has_steps = not is_step and dtype.itemsize < 4 and phase.place.is_written
        # An optimizer's operations are rounded one by one, with exact numbers, under every policy.
        # float64 tensors of a program are followed as they are: PyTorch's kernels take Python's numbers exactly there.
        is_written = phase.place.is_written and dtype != torch.float64 and not isinstance(phase, ParameterPhase)
        self.is_by_cpu, self.is_by_cuda = (
            is_written and not phase.place.is_for_cuda,
            is_written and phase.place.is_for_cuda,
        )
        self._last: Arithmetic | None = None  # which rounds that result
        self._forced_format: Format | None = None  # of the result whatever the policy says
        self._saturates = False

    def round_to_fp32_first(self) -> None:
        """Round results to FP32 first, where a 16-bit type of the program's own is followed."""
        self._has_steps = self.dtype.itemsize < 4 and self.phase.place.is_written

    def round_each_step(self) -> None:
        """Round each step to the program's own type, not its result alone."""
        self._has_steps = False

    def force_format(self, format: Format, *, saturates: bool) -> None:
        """Round results to this format under every policy, and steps to FP32."""
        self._forced_format, self._saturates, self._has_steps = format, saturates, True

    def begin(self) -> Arithmetic:
        """The arithmetic for a result."""
        arithmetic = self.phase.arithmetic(self.operands)
        if self._forced_format is not None:
            # The operation names the type of its result, as torch._scaled_mm does with out_dtype: no role of the policy
            # is asked, and no format of its is refused.
            rounding = arithmetic.target.rounding.saturating() if self._saturates else arithmetic.target.rounding
            target = arithmetic.target._replace(
                format=self._forced_format, dtype=carrier_of(self._forced_format), rounding=rounding
            )
            arithmetic = arithmetic.with_target(target)._replace(refusal="")
        self.arithmetic = self._in_program_type(self.phase.place, arithmetic)
        if self._has_steps:
            self._last = self.arithmetic
            # Steps are not observed: an observer counts what the program stores, which is the result in its narrow
            # type.
            steps = self._last.target._replace(format=FP32, dtype=carrier_of(FP32), observer=None)
            self.arithmetic = self._last.with_target(steps)
        self.format = self.arithmetic.format
        return self.arithmetic

    def begin_composite(self, arrays: Sequence[NDArray]) -> Rounded:
        """The arithmetic for the formula of a composite whose operands are these arrays.

        Going forward, and on the way back through one that is fused, every step has a place of its own.
        """
        phase = self.phase
        # An unfused backward formula has one place, that of the composite, in the role of the gradient that it
        # computes. PyTorch calls it by one operation, whose steps no policy names.
        if isinstance(phase, ParameterPhase) or isinstance(phase, Backward) and not phase.is_fused or self._has_steps:
            return self.begin()
        if not isinstance(phase, Backward):
            operand_formats = zip(arrays, (tag_of(x).format for x in self.operands), strict=True)
            return CompositeArithmetic.forward(phase.simulation, phase.place, operand_formats, self._in_program_type)

        def rounds(step: Place, _: tuple[NDArray, ...]) -> Arithmetic:
            return self._in_program_type(step, phase.inside(step.operation).arithmetic(self.operands))

        return CompositeArithmetic(phase.simulation, phase.place, rounds)

    def _in_program_type(self, place: Place, unchecked: Arithmetic) -> Arithmetic:
        """The arithmetic of a place in the program's own type; ValueError where that does not hold its results."""
        if self._shown is not None:
            self._shown[str(self.name), place] = None
        arithmetic = self._in_narrow_type(unchecked) if self.dtype in NARROW else unchecked
        if not arithmetic.format.fits_float32 and self.dtype != torch.float64:
            raise ValueError(
                f"{arithmetic.where}: the result of {self.name} has the format {arithmetic.format} here, which "
                f"{self.dtype} does not hold; make the model and its data double, by model.double()."
            )
        return arithmetic

    def _in_narrow_type(self, arithmetic: Arithmetic) -> Arithmetic:
        """Narrow the results of an arithmetic to the program's own type, if the policy has a wider format."""
        narrow, format = FORMAT_OF[self.dtype], arithmetic.format
        # FP16 and BF16 do not contain each other, so precision and exponent are compared one by one.
        if format.precision <= narrow.precision and format.exponent_bits <= narrow.exponent_bits:
            return arithmetic
        if format.precision < narrow.precision or format.exponent_bits < narrow.exponent_bits:
            raise ValueError(
                f"{arithmetic.where}: the program makes {self.name} a {self.dtype}, the policy rounds it to {format}, "
                "and neither holds the other; take the cast out of the program, or choose a policy of that type."
            )
        return arithmetic.with_target(arithmetic.target._replace(format=narrow))

    def apply(self, operation: str, *operands: Numbers) -> NDArray:
        """An operation of the catalog."""
        return self.arithmetic.apply(operation, *map(numbers_of, operands))

    def times(self, factor: float, a: Numbers) -> NDArray:
        """factor * a, which for a factor of 1 or -1 is not rounded."""
        array = numbers_of(a)
        # A factor of 1 is no product in PyTorch's formulas, and most calls have the default alpha of 1. A rounding here
        # would be one too many.
        if factor == 1:
            return array
        return -array if factor == -1 else self.multiply(factor, array)

    def fused_total(self, factor: Numbers, b: Numbers, a: Numbers) -> NDArray:
        """factor * b + a: in one rounding where PyTorch's CPU kernels are followed, which have a fused operation."""
        # `alpha`, `addcmul` and `lerp` end in a fused multiply-add in PyTorch's vectorized CPU kernels. Elsewhere, and
        # under all other policies, an operation of PyTorch's is the operations of its formula.
        if self.is_by_cpu:
            return self.apply("fma", factor, b, a)
        return self.total(a, self.multiply(numbers_of(factor), numbers_of(b)))

    def total(self, a: Numbers, b: Numbers) -> NDArray:
        """a + b as the result: by the policy's last addition where it goes to a parameter."""
        format, total = self.phase.total(self.arithmetic, numbers_of(a), numbers_of(b))
        self.format = format
        return total

    def difference(self, a: Numbers, b: Numbers) -> NDArray:
        """a - b as the result: by the policy's last addition where it goes to a parameter."""
        # The negation is exact, so that one last addition serves both signs, and counts lost updates of both.
        return self.total(a, -numbers_of(b)) if self.phase.is_last_addition() else self.subtract(a, b)

    def round_selected(self, x: Numbers) -> NDArray:
        """The numbers themselves as the result, rounded: as a moment where they become one."""
        self.format, rounded = self.phase.round_selected(self.arithmetic, numbers_of(x))
        return rounded

    def round(self, x: Numbers) -> NDArray:
        """The numbers themselves, rounded."""
        return self.arithmetic.round(numbers_of(x))

    def sum(self, x: Numbers, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes`, which are dropped, in row-major order, by the policy's `reduce`."""
        self.phase.place.has_summed = True
        return self.arithmetic.sum(numbers_of(x), axes)

    def running_sums(self, rows: NDArray) -> NDArray:
        """The sums of all rows (n, columns) up to each, by the policy's `reduce`."""
        self.phase.place.has_summed = True
        return self.arithmetic.running_sums(rows)

    def running_products(self, rows: NDArray) -> NDArray:
        """The products of all rows (n, columns) up to each, every one rounded."""
        return self.arithmetic.running_products(rows)

    def added_rows(self, rows: NDArray, places: NDArray[np.integer], shape: tuple[int, int]) -> NDArray:
        """Rows, one for each of places, added into an array of this shape by the policy's `reduce`, in their order."""
        self.phase.place.has_summed = True
        return add_rows(self.arithmetic, rows, places, shape)

    def spread(
        self, parts: Iterable[NDArray], g: NDArray, sides: Sequence[WindowAxis], shape: tuple[int, ...]
    ) -> NDArray:
        """What windows give to the pixels at each of their places; through the policy's `reduce` where they overlap."""
        self.phase.place.has_summed = True
        return spread_gradient(self.arithmetic, parts, g, sides, shape)

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """How both operands of a contraction are rounded."""
        return self.phase.inputs(a, b)

    def tensor(self, array: NDArray) -> torch.Tensor:
        """The result as a tensor of the operation's type, of which its format is known."""
        # A result may come from a single step that was rounded to the final format already.
        if self._last is not None and self.format == FP32 != self._last.format:
            array, self.format = self._last.round(array), self._last.format
        result = tensor_of(array, self.dtype)
        put_tag(result, self.phase.tag(self.format, self.operands))
        return result

    def result(self, u: Rounded, array: NDArray) -> torch.Tensor:
        """A result of a formula, rounded once where it is that of a fused composite."""
        if isinstance(u, CompositeArithmetic):
            if self.phase.is_fused:
                array = self.begin().round(array)
            else:
                self.format = u.format_of(array) or self.begin().format
        return self.match_operand_layout(self.tensor(array))

    def saved_for_backward(self, u: Rounded, array: NDArray) -> torch.Tensor:
        """Return a tensor for the backward pass of a formula, in the type that holds all operands."""
        dtype = result_type(self.operands)
        tensor = tensor_of(array, dtype)
        put_tag(tensor, in_type(Tag(u.format_of(array) if isinstance(u, CompositeArithmetic) else self.format), dtype))
        return tensor

    def match_operand_layout(self, result: torch.Tensor) -> torch.Tensor:
        """The result in memory that is laid out as that of the first operand of its shape."""
        shape = result.shape
        for model in self.operands:
            if model.shape == shape:
                break
        else:
            return result
        # Most are, and no strides have to be compared.
        if model.is_contiguous():
            return result
        copy = match_layout(result, model)
        if copy is not result:
            put_tag(copy, tag_of(result))
        return copy
