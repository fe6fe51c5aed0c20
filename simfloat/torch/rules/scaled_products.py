"""Products of matrices of float8 numbers, each operand with a scale: torch._scaled_mm."""

from __future__ import annotations

from typing import Any

import torch

from simfloat.torch.floating_operands import Arguments, Options
from simfloat.torch.handlers import Handler, Ruled
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.aten_contractions import product
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import NOTHING, Tag
from simfloat.torch.tensor_arrays import numbers_of

Tensor = torch.Tensor


class ScaledProduct(Handler):
    """a @ b by the policy's `accumulate`, times both scales, plus a bias, times the scale of the result.

    Each step is rounded to FP32, and what they come to is rounded once to the type that is asked for.
    """

    how = "rule"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The product."""
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **options}
        a, b = given["self"], given["mat2"]
        factors = [_factor(given[name], a.shape[0], b.shape[1]) for name in ("scale_a", "scale_b")]
        bias, last = given.get("bias"), given.get("scale_result")

        def rule(call: RuleCall, *_: Tensor, **__: Any) -> Tensor:
            found = product(call, a, b)
            for factor in factors:
                found = call.multiply(found, factor)
            found = found if bias is None else call.add(found, numbers_of(bias))
            return call.tensor(found if last is None else call.multiply(found, numbers_of(last)))

        operands = [a, b] if bias is None else [a, b, bias]
        return Ruled("matmul", rule)(run, func, tuple(operands), {"dtype": given.get("out_dtype") or a.dtype}, into)


def _factor(scale: Tensor, rows: int, columns: int) -> Any:
    """The numbers of a scale; ValueError unless it is that of a whole operand, or of rows and columns."""
    if scale.numel() != 1 and tuple(scale.shape) not in ((rows, 1), (1, columns)):
        raise ValueError(
            f"_scaled_mm takes a scale of a whole operand, or scales of rows ({rows}, 1) and columns (1, {columns}); "
            f"got shape {tuple(scale.shape)}. For blocks along k give a policy's operands a block scale."
        )
    numbers = numbers_of(scale)
    return numbers.reshape(()) if scale.numel() == 1 else numbers


#: By PyTorch's name.
TABLE: dict[str, Handler] = {"_scaled_mm": ScaledProduct()}
