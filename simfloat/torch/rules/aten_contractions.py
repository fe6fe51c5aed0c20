"""Products of matrices: operands are rounded by what they are, sums go through the policy's `accumulate`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from simfloat.accumulate.scales import Scales
from simfloat.arithmetic.target import carrier_of
from simfloat.formats import FP32
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.widest import widest_format
from simfloat.torch.floating_operands import Arguments
from simfloat.torch.handlers import Rule
from simfloat.torch.phases import Forward
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tags import weight_path
from simfloat.torch.tensor_arrays import numbers_of


def at_least_fp32(arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with results in FP32, or in its own format if that is wider."""
    format = widest_format((FP32, arithmetic.format))
    if format == arithmetic.format:
        return arithmetic
    return arithmetic.with_target(arithmetic.target._replace(format=format, dtype=carrier_of(format)))


def product(
    call: RuleCall, a: torch.Tensor, b: torch.Tensor, axes: int = 2, scales: Scales | None = None, *,
    is_wide: bool = False,
) -> NDArray:  # fmt: skip
    """a (m, k) times b (k, n), or (batch, m, k) times (batch, k, n) with three axes; blocks may have scales.

    With `is_wide` the sums are rounded to FP32 at least, for what comes before the rounding of the result.

    Raises ValueError for shapes that do not fit: a rule is asked before PyTorch has looked at them.
    """
    if (a.ndim, b.ndim) != (axes, axes) or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        needed = "(m, k) by (k, n)" if axes == 2 else "(batch, m, k) by (batch, k, n)"
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"{call.phase.place.where}: {call.name} multiplies {needed}, got shapes {shapes}.")
    # A kernel multiplies the sum by alpha before its one rounding to the type of the result. Rounded sums would be
    # rounded twice.
    arithmetic = at_least_fp32(call.begin()) if is_wide else call.begin()
    return arithmetic.matmul(numbers_of(a), numbers_of(b), *call.inputs(a, b), scales)


def mm(call: RuleCall, a: torch.Tensor, b: torch.Tensor, *, axes: int = 2) -> torch.Tensor:
    """The product of matrices, or of a batch of them."""
    return call.tensor(product(call, a, b, axes))


def mv(call: RuleCall, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of a matrix and a vector, or of two vectors."""
    rows = a if a.ndim > 1 else a.unsqueeze(0)
    result = product(call, rows, b.unsqueeze(-1))
    return call.tensor(result[..., 0] if a.ndim > 1 else result[0, 0])


def addmm(
    call: RuleCall,
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    axes: int = 2,
) -> torch.Tensor:
    """beta * c + alpha * a @ b: where both factors are 1 the product is rounded, and so is the sum.

    Other factors multiply in FP32 or wider, as the sums of products are, before the one rounding.
    """
    alpha, beta = float(alpha), float(beta)
    is_scaled = alpha != 1 or beta not in (0, 1)
    result = product(call, a, b, axes, is_wide=is_scaled)
    steps = at_least_fp32(call.arithmetic)
    result = result if alpha == 1 else steps.multiply(numbers_of(alpha), result)
    if c.ndim > axes or any(n not in (1, m) for n, m in zip(c.shape[::-1], result.shape[::-1], strict=False)):
        raise ValueError(f"{call.name} adds to a product of shape {result.shape}, got shape {tuple(c.shape)}.")
    if beta == 0:
        return call.tensor(call.round(result) if is_scaled else result)
    share = numbers_of(c) if beta in (0, 1) else steps.multiply(numbers_of(beta), numbers_of(c))
    # From here on it is another operation of a policy, with a rounding, an override and random bits of its own.
    call.phase = call.phase.sibling("add", call.format)
    call.begin()
    return call.tensor(call.add(result, share))


def addmv(
    call: RuleCall, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return beta * c + alpha * a @ b for a matrix a and vectors b and c."""
    return addmm(call, c.unsqueeze(-1), a, b.unsqueeze(-1), beta=beta, alpha=alpha).squeeze(-1)


def addbmm(
    call: RuleCall, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return beta * c + alpha * the sum of a[i] @ b[i] over a batch: one sum through all products, in their order."""
    if (a.ndim, b.ndim) != (3, 3) or (a.shape[0], a.shape[2]) != b.shape[:2]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"{call.name} multiplies (batch, m, k) by (batch, k, n), got shapes {shapes}.")
    rows = a.transpose(0, 1).reshape(a.shape[1], -1)
    return addmm(call, c, rows, b.reshape(-1, b.shape[-1]), beta=beta, alpha=alpha)


def addr(
    call: RuleCall, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return beta * c + alpha * a b^T for vectors a and b."""
    return addmm(call, c, a.unsqueeze(-1), b.unsqueeze(0), beta=beta, alpha=alpha)


class SameTypeRule(Rule):
    """A product or a convolution, of operands of one type: PyTorch promotes none of them."""

    def type_of(self, phase: Forward, operands: list[torch.Tensor], args: Arguments) -> torch.dtype:
        """The operands' type; ValueError for several, integers among them."""
        first, *others = dict.fromkeys(x.dtype for x in args if isinstance(x, torch.Tensor))
        if others:
            raise ValueError(
                f"{phase.place.where} takes operands of one type, as in PyTorch, got {first} and {others[0]}; bring "
                f"one to the other's, as by x.to({operands[-1].dtype})."
            )
        return first


class Contraction(SameTypeRule):
    """A product whose operands are those of these numbers; with a parameter it is what a linear layer does."""

    def __init__(self, rule: Any, first: int = 0) -> None:
        super().__init__("matmul", rule)
        self.first, self.is_primitive = first, not first

    def operation_for(self, args: tuple[Any, ...]) -> str:
        """Linear with a parameter among the operands, else matmul."""
        # A product of two activations, as in attention, has overrides by another name than a layer's.
        factors = args[self.first : self.first + 2]
        return "linear" if any([weight_path(x) is not None for x in factors]) else "matmul"

    def in_policy_order(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The factors first, then what is added."""
        return operands[self.first :] + operands[: self.first]


class Outer(Contraction):
    """The product of a column and a row, whose types PyTorch promotes."""

    type_of = Rule.type_of


#: By PyTorch's name; overloads that ask for the type of the result, as of mm, have no rule.
TABLE: dict[str, Contraction] = {
    "mm.default": Contraction(mm),
    "bmm.default": Contraction(partial(mm, axes=3)),
    "mv": Contraction(mv),
    "dot": Contraction(mv),
    "vdot": Contraction(mv),
    "addr": Outer(addr, 1),
    "addmm.default": Contraction(addmm, 1),
    "addmv": Contraction(addmv, 1),
    "addbmm": Contraction(addbmm, 1),
    "baddbmm.default": Contraction(partial(addmm, axes=3), 1),
}
