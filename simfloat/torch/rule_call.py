"""Carry out one operation of PyTorch: the arithmetic that a rule computes with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.target import carrier_of
from simfloat.formats import FP32, Format
from simfloat.simulation.arithmetic import Arithmetic, Elementwise, Input
from simfloat.simulation.formulas import Rounded
from simfloat.simulation.inside import CompositeArithmetic, add_rows
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
    stored_format,
    tag_of,
    tensor_of,
)


class RuleCall(Elementwise):
    """The arithmetic for a rule: every result is rounded once, as the policy requires at the place of the operation.

    Operands may be arrays, tensors and numbers.
    """

    def __init__(
        self, phase: Forward, operands: Sequence[torch.Tensor], dtype: torch.dtype, name: object, shown: Shown | None,
        *, is_primitive: bool = False,
    ) -> None:  # fmt: skip
        self.phase, self.operands, self.dtype, self.name, self._shown = phase, operands, dtype, name, shown
        self.arithmetic: Arithmetic
        if phase.place.is_written:
            phase.in_type(dtype)
        # In a narrow dtype of the program, an operation of several steps computes in FP32 and rounds its result. The
        # addition to `.grad` is a single step, so that an observer receives how many of its sums lose an addend.
        is_step = is_primitive or isinstance(phase, CompleteGradient) and phase.is_addition
        self._has_steps = not is_step and dtype.itemsize < 4 and phase.place.is_written
        # Operations of an optimizer are rounded one by one, with exact numbers, under every policy. For float64 tensors
        # no kernel is imitated, because PyTorch uses Python numbers exactly there.
        is_written = phase.place.is_written and dtype != torch.float64 and not isinstance(phase, ParameterPhase)
        self.is_by_cpu, self.is_by_cuda = (
            is_written and not phase.place.is_for_cuda,
            is_written and phase.place.is_for_cuda,
        )
        self._last: Arithmetic | None = None  # rounds the result to the narrow dtype
        self._forced_format: Format | None = None  # of the result, under every policy
        self._saturates = False

    def round_to_fp32_first(self) -> None:
        """Round results to FP32 first, if the operation follows a 16-bit dtype of the program."""
        self._has_steps = self.dtype.itemsize < 4 and self.phase.place.is_written

    def round_each_step(self) -> None:
        """Round each step to the dtype of the program, not only the result."""
        self._has_steps = False

    def force_format(self, format: Format, *, saturates: bool) -> None:
        """Round results to this format under every policy, and steps to FP32."""
        self._forced_format, self._saturates, self._has_steps = format, saturates, True

    def begin(self) -> Arithmetic:
        """Return the arithmetic for a result."""
        arithmetic = self.phase.arithmetic(self.operands)
        if self._forced_format is not None:
            # The operation sets the dtype of its result, as torch._scaled_mm does with out_dtype: no role of the policy
            # applies, and all formats are supported.
            rounding = arithmetic.target.rounding.saturating() if self._saturates else arithmetic.target.rounding
            target = arithmetic.target._replace(
                format=self._forced_format, dtype=carrier_of(self._forced_format), rounding=rounding
            )
            arithmetic = arithmetic.with_target(target)._replace(refusal="")
        self.arithmetic = self._in_program_type(self.phase.place, arithmetic)
        if self._has_steps:
            self._last = self.arithmetic
            # Steps are not observed: an observer counts the values that the program stores, which is the result in its
            # narrow dtype.
            steps = self._last.target._replace(format=FP32, dtype=carrier_of(FP32), observer=None)
            self.arithmetic = self._last.with_target(steps)
        self.format = self.arithmetic.target.format
        return self.arithmetic

    def begin_sums(self) -> Arithmetic:
        """Return the arithmetic for a result that adds by the `reduce` of the policy."""
        self.phase.place.has_summed = True
        return self.begin()

    def begin_composite(self, arrays: Sequence[NDArray]) -> Rounded:
        """Return the arithmetic for the formula of a composite with these operands.

        In the forward pass, and in the backward pass of a composite that is rounded once, every step has its own place.
        """
        phase = self.phase
        # The formula of any other backward pass has one place, the place of the composite, in the role of the gradient.
        # PyTorch has one operation for it, and policies cannot name its steps.
        if isinstance(phase, ParameterPhase) or isinstance(phase, Backward) and not phase.is_fused or self._has_steps:
            return self.begin()
        if not isinstance(phase, Backward):
            # If no operand has axes, the constants of the formula would decide its format. So data have the format of
            # their dtype.
            has_axes = any(x.ndim for x in self.operands)
            formats = (tag_of(x).format if has_axes else stored_format(x) for x in self.operands)
            operand_formats = zip(arrays, formats, strict=True)
            return CompositeArithmetic.forward(phase.simulation, phase.place, operand_formats, self._in_program_type)

        def rounds(step: Place, _: tuple[NDArray, ...]) -> Arithmetic:
            return self._in_program_type(step, phase.inside(step.operation).arithmetic(self.operands))

        return CompositeArithmetic(phase.simulation, phase.place, rounds)

    def _in_program_type(self, place: Place, unchecked: Arithmetic) -> Arithmetic:
        """Return the arithmetic of a place in the dtype of the program.

        Raises ValueError if the dtype cannot represent its results.
        """
        if self._shown is not None:
            self._shown[str(self.name), place] = None
        arithmetic = self._in_narrow_type(unchecked) if self.dtype in NARROW else unchecked
        if not arithmetic.target.format.fits_float32 and self.dtype != torch.float64:
            raise ValueError(
                f"{arithmetic.where}: the result of {self.name} has the format {arithmetic.format}, which "
                f"{self.dtype} cannot represent; convert the model and its data to float64, by model.double()."
            )
        return arithmetic

    def _in_narrow_type(self, arithmetic: Arithmetic) -> Arithmetic:
        """Narrow the results of an arithmetic to the dtype of the program, if the policy has a wider format."""
        narrow, format = FORMAT_OF[self.dtype], arithmetic.format
        # FP16 and BF16 do not contain each other, so precision and exponent are compared separately.
        if format.precision <= narrow.precision and format.exponent_bits <= narrow.exponent_bits:
            return arithmetic
        if format.precision < narrow.precision or format.exponent_bits < narrow.exponent_bits:
            raise ValueError(
                f"{arithmetic.where}: the program casts {self.name} to {self.dtype}, the policy rounds it to {format}, "
                "and neither contains the other; remove the cast from the program, or choose a policy for that dtype."
            )
        return arithmetic.with_target(arithmetic.target._replace(format=narrow))

    def apply(self, operation: str, *operands: Numbers) -> NDArray:
        """Return the result of an operation of the catalog."""
        arrays = [x if type(x) is np.ndarray else numbers_of(x) for x in operands]
        return self.arithmetic.apply(operation, *arrays)

    def times(self, factor: float, a: Numbers) -> NDArray:
        """Return factor * a, which is not rounded if the factor is 1 or -1."""
        array = numbers_of(a)
        # PyTorch's formulas have no product for a factor of 1, and most calls have the default alpha of 1. A rounding
        # here would be one too many.
        if factor == 1:
            return array
        return -array if factor == -1 else self.multiply(factor, array)

    def fused_total(self, factor: Numbers, b: Numbers, a: Numbers) -> NDArray:
        """Return factor * b + a, with one rounding if the policy follows PyTorch's CPU kernels, which use an FMA."""
        # `alpha`, `addcmul` and `lerp` end in a fused multiply-add in PyTorch's vectorized CPU kernels. Elsewhere, and
        # under all other policies, an operation of PyTorch consists of the operations of its formula.
        if self.is_by_cpu:
            return self.apply("fma", factor, b, a)
        return self.total(a, self.multiply(numbers_of(factor), numbers_of(b)))

    def total(self, a: Numbers, b: Numbers) -> NDArray:
        """Return a + b as the result; for a parameter it is the last addition of the policy."""
        format, total = self.phase.total(self.arithmetic, numbers_of(a), numbers_of(b))
        self.format = format
        return total

    def difference(self, a: Numbers, b: Numbers) -> NDArray:
        """Return a - b as the result; for a parameter it is the last addition of the policy."""
        # The negation is exact, so one last addition serves both signs, and counts lost updates of both.
        return self.total(a, -numbers_of(b)) if self.phase.is_last_addition() else self.subtract(a, b)

    def round_selected(self, x: Numbers) -> NDArray:
        """Return the values as the result, rounded, in the format of a moment if they become one."""
        self.format, rounded = self.phase.round_selected(self.arithmetic, numbers_of(x))
        return rounded

    def round(self, x: Numbers, operation: str = "", *sources: NDArray) -> NDArray:
        """Return the values, rounded; the name of the step of a formula makes no difference."""
        return self.arithmetic.round(numbers_of(x))

    def sum(self, x: Numbers, axes: tuple[int, ...]) -> NDArray:
        """Return the sums over `axes`, which are dropped, in row-major order, by the `reduce` of the policy."""
        self.phase.place.has_summed = True
        return self.arithmetic.sum(numbers_of(x), axes)

    def running_sums(self, rows: NDArray) -> NDArray:
        """Return the sums of all rows (n, columns) up to each row, by the `reduce` of the policy."""
        self.phase.place.has_summed = True
        return self.arithmetic.running_sums(rows)

    def running_products(self, rows: NDArray) -> NDArray:
        """Return the products of all rows (n, columns) up to each row; every product is rounded."""
        return self.arithmetic.running_products(rows)

    def added_rows(self, rows: NDArray, places: NDArray[np.integer], shape: tuple[int, int]) -> NDArray:
        """Add each row to its place in an array of this shape, by the `reduce` of the policy, in their order."""
        self.phase.place.has_summed = True
        return add_rows(self.arithmetic, rows, places, shape)

    def inputs(self, a: torch.Tensor, b: torch.Tensor) -> tuple[Input, Input]:
        """Return the roundings of both operands of a contraction."""
        return self.phase.inputs(a, b)

    def tensor(self, array: NDArray) -> torch.Tensor:
        """Return the result as a tensor in the dtype of the operation, with a tag of its format."""
        # A result may come from a single step that was rounded to the final format already.
        if self._last is not None and self.format == FP32 != self._last.format:
            # A meter counts this rounding as part of the step before.
            array, self.format = Arithmetic.round(self._last, array), self._last.format
        result = tensor_of(array, self.dtype)
        if type(array) is np.ndarray:  # results that were computed on the CPU go to the device of the operands
            for x in self.operands:
                if x.device != result.device:
                    result = result.to(x.device)
                    break
        put_tag(result, self.phase.tag(self.format, self.operands))
        return result

    def result(self, u: Rounded, array: NDArray) -> torch.Tensor:
        """Return a result of a formula, rounded once if the composite is."""
        if isinstance(u, CompositeArithmetic):
            if self.phase.is_fused:
                array = self.begin().round(array)
            else:
                self.format = u.format_of(array) or self.begin().format
        return self.match_operand_layout(self.tensor(array))

    def saved_for_backward(self, u: Rounded, array: NDArray) -> torch.Tensor:
        """Return a tensor for the backward pass of a formula, in the result dtype of all operands."""
        dtype = result_type(self.operands)
        tensor = tensor_of(array, dtype)
        put_tag(tensor, in_type(Tag(u.format_of(array) if isinstance(u, CompositeArithmetic) else self.format), dtype))
        return tensor

    def match_operand_layout(self, result: torch.Tensor) -> torch.Tensor:
        """Return the result in the memory layout of the first operand of the same shape."""
        shape = result.shape
        for model in self.operands:
            if model.shape == shape:
                break
        else:
            return result
        # Most are contiguous, and no strides have to be compared.
        if model.is_contiguous():
            return result
        copy = match_layout(result, model)
        if copy is not result:
            put_tag(copy, tag_of(result))
        return copy
