"""Verdicts on the results of an operation of PyTorch: compared by bits, or by an error bound."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

#: The verdicts on an operation, the best first.
WORDS = ("right", "refused", "slow", "wrong", "crashed")

#: The type of the samples by policy.
TYPES = {"fp32": torch.float32, "fp64": torch.float64}

#: The other type, for comparison: its results are exact, or show the size of rounding errors.
OTHER = {"fp32": torch.float64, "fp64": torch.float32}

#: Operations that PyTorch rounds once, so that bits are defined; float64 results, rounded again, are these bits, since
#: 53 bits are at least twice 24 and 2 (Figueroa 1995).
ONCE = frozenset(
    """
    aten.add.Tensor aten.sub.Tensor aten.mul.Tensor aten.div.Tensor aten.sqrt.default aten.reciprocal.default
    aten.abs.default aten.neg.default aten.sgn.default aten.sign.default aten.floor.default aten.ceil.default
    aten.trunc.default aten.round.default aten.maximum.default aten.minimum.default aten.fmax.default
    aten.fmin.default aten.relu.default aten.square.default aten.clamp.default aten.clamp_min.default
    aten.clamp_max.default aten.copysign.Tensor aten.fmod.Tensor aten.remainder.Tensor aten.floor_divide.default
    """.split()
)

#: The number of roundings that is allowed for one element of the result, for each element of the operands.
STEPS = 8


class Verdict(NamedTuple):
    """The verdict on an operation, with the reason."""

    word: str
    why: str = ""


def rank(verdict: Verdict) -> int:
    """Return a number that is larger for a worse verdict."""
    return WORDS.index(verdict.word)


def compared(
    ours: list[torch.Tensor], plain: list[torch.Tensor], other: list[torch.Tensor], sample: Any, policy: str,
    operations: set[str],
) -> Verdict:  # fmt: skip
    """Return the verdict on results, compared with those of plain PyTorch and of the other type."""
    if len(ours) != len(plain):
        return Verdict("wrong", f"{len(ours)} results and gradients instead of {len(plain)}")
    inputs = [x for x in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(x, torch.Tensor)]
    largest, count = max(map(size_of, inputs), default=0.0), max((x.numel() for x in inputs), default=1)
    is_once = not operations or (len(operations) == 1 and operations <= ONCE and "alpha" not in sample.kwargs)
    for number, (mine, its, there) in enumerate(zip(ours, plain, other, strict=True)):
        if mine.shape != its.shape or mine.dtype != its.dtype:
            due = f"{its.dtype} {tuple(its.shape)}"
            return Verdict("wrong", f"result {number} is {mine.dtype} {tuple(mine.shape)}, not {due}")
        exact = there if policy == "fp32" else its
        if number == 0 and is_once and not its.is_complex():
            if not same(mine, exact.to(its.dtype)):
                return Verdict("wrong", f"result 0 is not rounded once: {difference(mine, exact.to(its.dtype))}")
        elif not close(mine, its, there, policy, largest, count):
            return Verdict("wrong", f"result {number}: {difference(mine, its)}")
    return Verdict("right")


def size_of(x: torch.Tensor) -> float:
    """Return the largest finite |x|."""
    numbers = dense(x.detach()).double().abs().nan_to_num(0.0, 0.0, 0.0)
    return float(numbers.max()) if numbers.numel() else 0.0


def dense(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a dense real one, whatever its layout."""
    x = x.to_dense() if x.layout != torch.strided else x
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x.resolve_neg()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors have the same bits; all NaN are equal."""
    a, b = dense(a), dense(b)
    if a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()):
        return False
    return not a.is_floating_point() or bool(((a.signbit() == b.signbit()) | a.isnan()).all())


def close(mine: torch.Tensor, its: torch.Tensor, other: torch.Tensor, policy: str, largest: float, count: int) -> bool:
    """True if values differ from the exact ones by at most `count` times STEPS roundings.

    A rounding is relative to the largest of 1, the operands and the results. Four times PyTorch's own error is added;
    for float64, this error is estimated from that of float32. Integers and booleans must equal PyTorch's.
    """
    mine, its, other = dense(mine), dense(its), dense(other)
    if not mine.is_floating_point():
        return torch.equal(mine, its)
    unit, coarse = (torch.finfo(dtype).eps / 2 for dtype in (TYPES[policy], torch.float32))
    exact = (other if policy == "fp32" else its).double()
    lost = (its.double() - other.double()).abs().nan_to_num(0.0, 0.0).amax() * (unit / coarse) if its.numel() else 0.0
    bound = STEPS * count * unit * max(1.0, largest, size_of(exact)) + 4 * lost
    near = (mine.double() - exact).abs() <= bound
    return bool((near | (mine.double() == its.double()) | (mine.isnan() & its.isnan())).all())


def difference(mine: torch.Tensor, due: torch.Tensor) -> str:
    """Return the first two values that differ, as text."""
    mine, due = dense(mine).reshape(-1), dense(due).reshape(-1)
    at = int((mine != due).double().argmax()) if mine.numel() else 0
    return f"{mine[at].item()!r} instead of {due[at].item()!r}" if mine.numel() else "nothing"
