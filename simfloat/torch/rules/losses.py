"""Rules of losses and of distances between rows, forward and backward.

Losses and distances are written in PyTorch's operations or by formulas. Connectionist temporal classification has the
arguments of PyTorch's operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_cpu
from simfloat.simulation.formulas import Rounded, negative, number
from simfloat.simulation.formulas import losses as loss_formulas
from simfloat.simulation.formulas.losses import Alignment, ctc_loss, ctc_loss_slope, pad_targets
from simfloat.torch.formula import Formula, Function
from simfloat.torch.handlers import Decomposition, Handler, cast_number
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import NARROW, numbers_of

Tensor = torch.Tensor

#: PyTorch's numbers of the reductions of losses.
NONE, MEAN = 0, 1

#: The names of the reductions in formulas, by these numbers.
REDUCTIONS = ("none", "mean", "sum")


def reduce_losses(losses: Tensor, reduction: int) -> Tensor:
    """Return each loss, their mean, or their sum."""
    return losses if reduction == NONE else losses.mean() if reduction == MEAN else losses.sum()


def loss_gradient(g: Tensor, losses: Tensor, reduction: int) -> Tensor:
    """Return the gradient of each loss from the gradient of the reduced loss."""
    return g / losses.numel() if reduction == MEAN else g


def binary_cross_entropy(
    u: Rounded, x: NDArray, y: NDArray, weight: NDArray | None = None, reduction: int = MEAN
) -> NDArray:
    """Return the binary cross-entropy by its formula."""
    loss_formulas.check_probabilities(x)
    return loss_formulas.binary_cross_entropy(u, x, y, weight, REDUCTIONS[reduction])


def binary_cross_entropy_backward(
    u: Rounded, g: NDArray, x: NDArray, y: NDArray, weight: NDArray | None = None, reduction: int = MEAN
) -> NDArray:
    """Return the gradient of x."""
    return loss_formulas.binary_cross_entropy_slope(u, g, x, y, weight, REDUCTIONS[reduction])


def soft_margin_loss(u: Rounded, x: NDArray, y: NDArray, reduction: str) -> NDArray:
    """Return log1p(exp(-y * x)), reduced."""
    powers = u.apply("exp", u.multiply(negative(u, y), x))
    return loss_formulas.reduce_losses(u, u.apply("log1p", powers), reduction)


def soft_margin_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """Return -y * g * sigmoid(-y * x)."""
    return -y * loss_gradient(g, x, reduction) * (-y * x).sigmoid()


def margins(x: Tensor, target: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the positive part of margin - x[target] + x, 0 at the target itself, and the positions of the targets."""
    places = target.reshape(-1, 1) if x.ndim > 1 else target.reshape(1)
    left = (x - x.gather(-1, places) + margin).relu()
    return left.scatter(-1, places, 0.0), places


def multi_margin_loss(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Return the sums of margins over all classes, squared for p = 2, divided by the number of classes."""
    x = torch.atleast_1d(x)
    left = margins(x, target, margin)[0]
    left = left * left if p == 2 else left
    left = left if weight is None else left * weight[target].unsqueeze(-1)
    return reduce_losses(left.sum(-1) / x.shape[-1], reduction)


def multi_margin_loss_backward(
    g: Tensor, x: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Return the gradient of x.

    It is g, divided as in the loss, for a positive margin m (times 2 m for p = 2). Targets receive minus the sum of
    these.
    """
    shape, x = x.shape, torch.atleast_1d(x)
    left, places = margins(x, target, margin)
    share = loss_gradient(g, x[..., 0], reduction).unsqueeze(-1) / x.shape[-1]
    share = share if weight is None else share * weight[target].unsqueeze(-1)
    slope = torch.where(left > 0, share * (left * 2) if p == 2 else share, torch.zeros_like(left))
    return slope.scatter(-1, places, -slope.sum(-1, keepdim=True)).reshape(shape)


def margins_of_many(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positive part of 1 - x[t] + x for every target t, 0 at targets, and the count of each target class.

    The margins have the shape (..., targets, classes). Targets end at the first -1.
    """
    is_target = (target >= 0).cumprod(-1).bool()
    places = torch.where(is_target, target, 0)
    # Targets are counted, because a class may occur twice.
    counts = torch.zeros(x.shape, dtype=torch.int64, device=x.device).scatter_add(-1, places, is_target.long())
    left = (1 - x.gather(-1, places).unsqueeze(-1) + x.unsqueeze(-2)).relu()
    return torch.where(is_target.unsqueeze(-1) & (counts == 0).unsqueeze(-2), left, torch.zeros_like(left)), counts


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> tuple[Tensor, Tensor]:
    """Return the sums of these margins, divided by the number of classes, and a mask of the targets."""
    shape, rows = target.shape, torch.atleast_1d(x)
    left, counts = margins_of_many(rows, torch.atleast_1d(target))
    loss = reduce_losses(left.sum((-2, -1)) / rows.shape[-1], reduction)
    return loss, (counts > 0).to(x.dtype).reshape(shape)


def multilabel_margin_loss_backward(g: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Tensor:
    """Return the gradient of x.

    It is g, divided as in the loss, summed over the targets with a positive margin. Targets receive minus their own
    sums.
    """
    shape, rows, target = x.shape, torch.atleast_1d(x), torch.atleast_1d(target)
    left = margins_of_many(rows, target)[0]
    share = loss_gradient(g, rows[..., 0], reduction).reshape(*([-1] if g.ndim else []), 1, 1) / rows.shape[-1]
    slope = torch.where(left > 0, share, torch.zeros_like(left))
    return slope.sum(-2).scatter_add(-1, target.clamp(min=0), -slope.sum(-1)).reshape(shape)


def xlogy(u: Rounded, x: NDArray | float, y: NDArray | float) -> NDArray:
    """Return xlogy by its formula; one operand may be a number."""
    return loss_formulas.xlogy(u, *(each if isinstance(each, np.ndarray) else number(each) for each in (x, y)))


def logistic_loss(
    u: Rounded, x: NDArray, y: NDArray, weight: NDArray | None = None, pos_weight: NDArray | None = None,
    reduction: int = MEAN,
) -> NDArray:  # fmt: skip
    """Return the binary cross-entropy with logits by its formula."""
    return loss_formulas.logistic_loss(u, x, y, weight, pos_weight, REDUCTIONS[reduction])


def nll_loss(
    u: Rounded, x: NDArray, target: NDArray, weight: NDArray | None, reduction: int, ignored: int
) -> tuple[NDArray, NDArray]:
    """Return the negative log-likelihood loss by its formula; classes are axis 1, or axis 0 for a single example.

    Raises ValueError if a target or weights are invalid, because a rule runs before PyTorch has checked them.
    """
    axis = min(1, x.ndim - 1)
    due = (*x.shape[:axis], *x.shape[axis + 1 :])
    if target.dtype.kind not in "iu" or target.shape != due:
        got = f"{target.dtype} of shape {target.shape}"
        raise ValueError(f"cross_entropy takes class indices, integers of shape {due}, got {got}.")
    loss_formulas.check_classes(target, weight, x.shape[axis], ignored)
    return loss_formulas.nll_loss(u, x, target, weight, REDUCTIONS[reduction], ignored, axis)


def nll_loss_slope(
    u: Rounded, g: NDArray, x: NDArray, target: NDArray, weight: NDArray | None, reduction: int, ignored: int,
    divisor: NDArray,
) -> NDArray:  # fmt: skip
    """Return the gradient of the negative log-likelihood loss by its formula."""
    axis = min(1, x.ndim - 1)
    return loss_formulas.nll_loss_slope(u, g, x, target, weight, REDUCTIONS[reduction], ignored, divisor, axis)


def with_reduction_name(formula: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Wrap a formula of losses: argument number `at`, the name of the reduction, is passed as PyTorch's number."""

    def by_name(u: Rounded, *args: Any) -> Any:
        reduction = args[at] if len(args) > at else MEAN
        return formula(u, *args[:at], REDUCTIONS[reduction], *args[at + 1 :])

    return by_name


class LossInType(Formula):
    """A loss with steps that PyTorch's CPU kernels round to some 16-bit dtypes; its mean or sum is computed in FP32."""

    def __init__(self, operation: str, function: Function, types: Sequence[torch.dtype]) -> None:
        super().__init__(operation, function)
        self._types = types

    def compute(self, call: RuleCall, x: Tensor, y: Tensor, reduction: int = MEAN, *others: float) -> Any:
        """Return the losses, or their reduction."""
        if not (call.is_by_cpu and call.dtype in self._types):
            return super().compute(call, x, y, reduction, *others)
        # PyTorch's CPU kernels of these losses compute step by step in the 16-bit dtype, and their reduction in
        # float32.
        call.round_each_step()
        dtype = call.dtype
        losses = self.function(
            call.begin(), numbers_of(x), numbers_of(y), NONE, *(cast_number(n, dtype) for n in others)
        )
        if reduction != NONE:
            call.round_to_fp32_first()
            losses = loss_formulas.reduce_losses(call.begin(), losses, REDUCTIONS[reduction])
        return call.match_operand_layout(call.tensor(losses))


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "mse_loss": LossInType("mse_loss", with_reduction_name(loss_formulas.mse_loss, 2), NARROW),
    "mse_loss_backward": Formula("mse_loss", with_reduction_name(loss_formulas.mse_loss_slope, 3)),
    "smooth_l1_loss": LossInType(
        "smooth_l1_loss", with_reduction_name(loss_formulas.smooth_l1_loss, 2), (torch.float16,)
    ),
    "smooth_l1_loss_backward": Formula("smooth_l1_loss", with_reduction_name(loss_formulas.smooth_l1_loss_slope, 3)),
    "huber_loss": LossInType("huber_loss", with_reduction_name(loss_formulas.huber_loss, 2), (torch.bfloat16,)),
    "huber_loss_backward": Formula("huber_loss", with_reduction_name(loss_formulas.huber_loss_slope, 3)),
    "binary_cross_entropy_with_logits": Formula("binary_cross_entropy_with_logits", logistic_loss),
    "binary_cross_entropy": Formula("binary_cross_entropy", binary_cross_entropy),
    "binary_cross_entropy_backward": Formula("binary_cross_entropy", binary_cross_entropy_backward),
    "soft_margin_loss": LossInType("soft_margin_loss", with_reduction_name(soft_margin_loss, 2), NARROW),
    "soft_margin_loss_backward": Decomposition("soft_margin_loss", soft_margin_loss_backward),
    "multi_margin_loss": Decomposition("multi_margin_loss", multi_margin_loss),
    "multi_margin_loss_backward": Decomposition("multi_margin_loss", multi_margin_loss_backward),
    "multilabel_margin_loss_forward": Decomposition("multilabel_margin_loss", multilabel_margin_loss),
    "multilabel_margin_loss_backward": Decomposition("multilabel_margin_loss", multilabel_margin_loss_backward),
    **{name: Formula("cross_entropy", nll_loss) for name in ("nll_loss_forward", "nll_loss2d_forward")},
    **{name: Formula("cross_entropy", nll_loss_slope) for name in ("nll_loss_backward", "nll_loss2d_backward")},
    "xlogy": Formula("xlogy", xlogy),
}


Lengths = Sequence[int] | NDArray[np.integer]


def alignment(x: NDArray, targets: NDArray, inputs: Lengths, lengths: Lengths, blank: int) -> Alignment:
    """Return the alignment of targets with x (T, N, C); targets are (N, S), or concatenated.

    Raises ValueError for invalid lengths and classes.
    """
    inputs, lengths = (np.asarray(on_cpu(each), np.int64).reshape(-1) for each in (inputs, lengths))
    count, width = x.shape[1], int(lengths.max()) if len(lengths) else 0
    most = targets.shape[-1] if targets.ndim == 2 else width
    for what, each, longest in (("input", inputs, x.shape[0]), ("target", lengths, most)):
        if len(each) != count or not all(0 <= length <= longest for length in each.tolist()):
            raise ValueError(
                f"ctc_loss takes {count} {what} lengths, one for each sequence, from 0 to {longest}; "
                f"got {each.tolist()}."
            )
    if targets.shape[:-1] not in ((), (count,)) or (targets.ndim == 1 and targets.size != lengths.sum()):
        needed = f"({count}, {width}), or {int(lengths.sum())} concatenated"
        raise ValueError(f"ctc_loss takes targets {needed}, according to their lengths; got {tuple(targets.shape)}.")
    if not 0 <= blank < x.shape[2]:
        raise ValueError(f"ctc_loss takes a blank from 0 to {x.shape[2] - 1}, got {blank}.")
    named = pad_targets(targets, lengths, blank)
    if named.size and not 0 <= named.min() <= named.max() < x.shape[2]:
        raise ValueError(
            f"ctc_loss takes targets from 0 to {x.shape[2] - 1}, got {sorted(set(named.ravel().tolist()))}."
        )
    return Alignment.of(named, inputs, lengths, blank)


def loss(
    u: Rounded, x: NDArray, targets: NDArray, inputs: Lengths, lengths: Lengths, blank: int = 0, _: bool = False
) -> tuple[NDArray, NDArray]:
    """Return the losses of connectionist temporal classification by their formula; infinite losses stay infinite."""
    return ctc_loss(u, x, alignment(x, targets, inputs, lengths, blank))


def slope(
    u: Rounded, g: NDArray, x: NDArray, targets: NDArray, inputs: Lengths, lengths: Lengths, losses: NDArray,
    alphas: NDArray, blank: int, zero_infinity: bool = False,
) -> NDArray:  # fmt: skip
    """Return the gradient of x by its formula."""
    return ctc_loss_slope(u, g, losses, alphas, x, alignment(x, targets, inputs, lengths, blank), zero_infinity)


#: Rules, by PyTorch's name.
TABLE |= {
    "_ctc_loss": Formula("ctc_loss", loss),
    "_ctc_loss_backward": Formula("ctc_loss", slope),
}


def differences(x: Tensor, y: Tensor) -> Tensor:
    """Return the differences of every row of x (..., P, M) and every row of y (..., R, M): (..., P, R, M)."""
    return x.unsqueeze(-2) - y.unsqueeze(-3)


def distances(x: Tensor, y: Tensor, p: float, mode: int | None) -> Tensor:
    """Return the p-norms of the differences; raise ValueError for a negative p."""
    if p < 0:
        raise ValueError(f"cdist takes p of at least 0, got {p}.")
    return torch.linalg.vector_norm(differences(x, y), p, -1)


def distances_backward(g: Tensor, x: Tensor, y: Tensor, p: float, norm: Tensor) -> Tensor:
    """Return the gradient of x: sums over the rows of y.

    With a difference d and its norm n, the terms are g * d / n for p = 2. In general they are g * (d * |d|^(p - 2) /
    n^(p - 1)). For p = 1 they are g times the sign of d, and for infinite p the same for the largest |d| only. A norm
    of zero passes no gradient.
    """
    if p == 0:
        return torch.zeros_like(x)
    return along_differences(differences(x, y), g.unsqueeze(-1), norm.unsqueeze(-1), p).sum(-2)


def along_differences(d: Tensor, g: Tensor, n: Tensor, p: float) -> Tensor:
    """Return the gradients of differences d with norms n."""
    is_zero = (n == 0) | (d == 0)
    n = torch.where(n == 0, torch.ones_like(n), n)  # an observer would count 0 / 0 as NaN
    if p == 2:
        terms = g * d / n
    elif p == 1:
        terms = g * d.sign()
    elif p == math.inf:
        terms = torch.where(d.abs() == n, g * d.sign(), torch.zeros_like(d))
    else:
        terms = g * (d.sign() * d.abs() ** (p - 1) / n ** (p - 1))
    return torch.where(is_zero, torch.zeros_like(d), terms)


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Return sqrt(|x|^2 + |y|^2 - 2 x y), at least 0, by one matrix product, which PyTorch uses for many rows."""
    squares, others = ((rows * rows).sum(-1, keepdim=True) for rows in (x, y))
    left = torch.cat([x * -2, squares, torch.ones_like(squares)], -1)
    right = torch.cat([y, torch.ones_like(others), others], -1)
    return (left @ right.mT).clamp(min=0).sqrt()


def distances_of_pairs(x: Tensor, p: float = 2) -> Tensor:
    """Return the p-norms of the differences of every two rows."""
    first, second = torch.triu_indices(len(x), len(x), 1)
    return torch.linalg.vector_norm(x[first] - x[second], p, 1)


def distances_of_pairs_backward(g: Tensor, x: Tensor, p: float, norm: Tensor) -> Tensor:
    """Return the gradient of the rows: each difference contributes to one row, and negatively to the other."""
    first, second = torch.triu_indices(len(x), len(x), 1)
    if p == 0:
        return torch.zeros_like(x)
    terms = along_differences(x[first] - x[second], g.unsqueeze(-1), norm.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, torch.cat([first, second]), torch.cat([terms, -terms]))


#: Rules, by PyTorch's name.
TABLE |= {
    "_cdist_forward": Decomposition("sum", distances),
    "_cdist_backward": Decomposition("sum", distances_backward),
    "_pdist_forward": Decomposition("sum", distances_of_pairs),
    "_pdist_backward": Decomposition("sum", distances_of_pairs_backward),
    "_euclidean_dist": Decomposition("sum", euclidean),
}
