"""Products of matrices of float8 and float4 numbers with scales: torch._scaled_mm, torch.nn.functional.scaled_mm."""

from __future__ import annotations

import math
from typing import Any

import torch

from simfloat.torch.floating_operands import Arguments, Options
from simfloat.torch.handlers import Handler, Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.aten_contractions import product
from simfloat.torch.rules.given_scales import scales_of
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import FORMAT_OF, NOTHING, Tag
from simfloat.torch.tensor_arrays import PAIRED, numbers_of

Tensor = torch.Tensor

#: The types in which PyTorch's casts make an infinity the largest number: float8_e4m3fn, from version 2.13 on.
SATURATING = frozenset(
    dtype for dtype in FORMAT_OF if dtype != PAIRED and math.isfinite(torch.tensor(torch.inf).to(dtype).item())
)


class ScaledProduct(Handler):
    """a @ b by the policy's `accumulate`, times both scales, plus a bias, times the scale of the result.

    Each step is rounded to FP32, and the last result is rounded once to the type that is asked for, under every policy;
    it saturates where PyTorch's casts to that type do. Scales of blocks multiply sums as those of a policy's casts do;
    the scales of whole operands beside them are multiplied with each other first, as PyTorch hands them to cuBLAS.
    """

    how = "rule"

    #: What a policy calls it, which may give it an accumulator of its own.
    operation = "scaled_mm"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The product."""
        arguments = _arguments_by_name(func, args, options)
        a, b = arguments["self"], arguments["mat2"]
        bias, last = arguments.get("bias"), arguments.get("scale_result")
        factors, blocks = scales_of(arguments, a, b)

        dtype = _type_of(arguments)

        def rule(call: RuleCall, *_: Tensor, **__: Any) -> Tensor:
            call.force_format(FORMAT_OF[dtype], saturates=dtype in SATURATING)
            result = product(call, a, b, scales=blocks)
            for factor in [call.multiply(*factors)] if blocks and factors else factors:
                result = call.multiply(result, factor)
            result = result if bias is None else call.add(result, numbers_of(bias))
            return call.tensor(result if last is None else call.multiply(result, numbers_of(last)))

        operands = [a, b] if bias is None else [a, b, bias]
        return Rule(self.operation, rule)(run, func, tuple(operands), {"dtype": dtype}, into)

    def plain(self, func: Any, args: Arguments, options: Options) -> Any:
        """Zeros of the result's shape and type: PyTorch has no float4 products on a CPU."""
        arguments = _arguments_by_name(func, args, options)
        return arguments["self"].new_zeros(
            arguments["self"].shape[0], arguments["mat2"].shape[1], dtype=_type_of(arguments)
        )


def _arguments_by_name(func: Any, args: Arguments, options: Options) -> dict[str, Any]:
    """An operation's arguments by their names."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **options}


def _type_of(arguments: dict[str, Any]) -> torch.dtype:
    """The type of the result: that of the first operand unless another one is asked for, and BF16 of float4 numbers."""
    dtype = arguments["self"].dtype
    return arguments.get("out_dtype") or (torch.bfloat16 if dtype == PAIRED else dtype)


#: By PyTorch's name.
TABLE: dict[str, Handler] = {"_scaled_mm": ScaledProduct(), "_scaled_mm_v2": ScaledProduct()}
