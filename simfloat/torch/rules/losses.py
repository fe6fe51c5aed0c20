"""Losses, forward and backward, in PyTorch's operations."""

from __future__ import annotations

import torch

from simfloat.torch.handlers import Composed
from simfloat.torch.tensor_arrays import exactly

Tensor = torch.Tensor

#: The numbers by which PyTorch's operations name what becomes of the losses of all examples.
NONE, MEAN = 0, 1


def gathered(losses: Tensor, reduction: int) -> Tensor:
    """Each loss, their mean, or their sum."""
    return losses if reduction == NONE else losses.mean() if reduction == MEAN else losses.sum()


def shared(g: Tensor, losses: Tensor, reduction: int) -> Tensor:
    """The gradient of each loss from that of what was gathered."""
    return g / losses.numel() if reduction == MEAN else g


def mse_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """(x - y)^2."""
    return gathered((x - y).square(), reduction)


def mse_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """g * 2 (x - y)."""
    d = x - y
    return shared(g, d, reduction) * (d * 2)


def smooth_l1_loss(x: Tensor, y: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Tensor:
    """d * d * 1/2 / beta where d = |x - y| is less than beta, else d - beta / 2."""
    d = (x - y).abs()
    losses = torch.where(d < beta, d.square() * 0.5 / beta, d - beta / 2) if beta else d
    return gathered(losses, reduction)


def smooth_l1_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int, beta: float) -> Tensor:
    """g * d / beta where d = x - y lies between -beta and beta, else g times its sign."""
    d, share = x - y, shared(g, x, reduction)
    return torch.where(d.abs() < beta, d * share / beta, d.sign() * share) if beta else d.sign() * share


def huber_loss(x: Tensor, y: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    """d * d * 1/2 where d = |x - y| is less than delta, else delta * (d - delta / 2)."""
    d = (x - y).abs()
    return gathered(torch.where(d < delta, d.square() * 0.5, (d - delta / 2) * delta), reduction)


def huber_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int, delta: float) -> Tensor:
    """g * d where d = x - y lies between -delta and delta, else g * delta times its sign."""
    d, share = x - y, shared(g, x, reduction)
    return torch.where(d.abs() < delta, d * share, d.sign() * delta * share)


def binary_cross_entropy_with_logits(
    x: Tensor, y: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """(1 - y) * x + log(exp(-m) + exp(-x - m)) + m with m = max(-x, 0)."""
    m = (-x).relu()
    softplus = ((-m).exp() + (-x - m).exp()).log() + m
    if pos_weight is not None:
        softplus = softplus * ((pos_weight - 1) * y + 1)
    losses = (1 - y) * x + softplus
    return gathered(losses if weight is None else losses * weight, reduction)


def binary_cross_entropy(x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    """(y - 1) * log(1 - x) - y * log(x), logarithms being no less than -100."""
    losses = (y - 1) * (1 - x).log().clamp(min=-100) - y * x.log().clamp(min=-100)
    return gathered(losses if weight is None else losses * weight, reduction)


def binary_cross_entropy_backward(
    g: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """g * (x - y) / ((1 - x) * x), the divisor being no less than 1e-12."""
    slope = shared(g, x, reduction) * (x - y) / ((1 - x) * x).clamp(min=1e-12)
    return slope if weight is None else slope * weight


def soft_margin_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """log(exp(-y * x) + 1)."""
    return gathered(((-y * x).exp() + 1).log(), reduction)


def soft_margin_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """-y * g * sigmoid(-y * x)."""
    return -y * shared(g, x, reduction) * (-y * x).sigmoid()


def margins(x: Tensor, target: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """What is left of margin - x[target] + x, 0 at the target itself; and where the targets are."""
    places = target.reshape(-1, 1) if x.ndim > 1 else target.reshape(1)
    left = (x - x.gather(-1, places) + margin).relu()
    return left.scatter(-1, places, 0.0), places


def multi_margin_loss(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """The sums of margins over all classes, squared for p = 2, divided by the number of classes."""
    x = torch.atleast_1d(x)
    left = margins(x, target, margin)[0]
    left = left * left if p == 2 else left
    left = left if weight is None else left * weight[target].unsqueeze(-1)
    return gathered(left.sum(-1) / x.shape[-1], reduction)


def multi_margin_loss_backward(
    g: Tensor, x: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """g, divided as the loss was, where a margin m is left (times 2 m for p = 2); the targets get minus its sum."""
    shape, x = x.shape, torch.atleast_1d(x)
    left, places = margins(x, target, margin)
    share = shared(g, x[..., 0], reduction).unsqueeze(-1) / x.shape[-1]
    share = share if weight is None else share * weight[target].unsqueeze(-1)
    slope = torch.where(left > 0, share * (left * 2) if p == 2 else share, torch.zeros_like(left))
    return slope.scatter(-1, places, -slope.sum(-1, keepdim=True)).reshape(shape)


def weights_of(x: Tensor, target: Tensor, weight: Tensor | None, ignore: int) -> tuple[Tensor, Tensor]:
    """The class of every example, along axis 1 as x has it, and what its loss counts for."""
    kept = target != ignore
    places = torch.where(kept, target, torch.zeros_like(target)).unsqueeze(min(1, x.ndim - 1))
    counts = kept.to(x.dtype)
    return places, counts if weight is None else weight[places.squeeze(min(1, x.ndim - 1))] * counts


def nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int) -> tuple[Tensor, Tensor]:
    """-x at the targets, each times its weight; the mean is the sum divided by that of the weights, which comes too."""
    places, counts = weights_of(x, target, weight, ignore)
    losses = -x.gather(places.ndim - 1 if x.ndim == 1 else 1, places).squeeze(min(1, x.ndim - 1))
    losses = torch.where(target != ignore, losses, torch.zeros_like(losses))
    losses = losses if weight is None else losses * counts
    total = (target != ignore).sum().to(x.dtype) if weight is None else counts.sum()
    if reduction == NONE:
        return losses, total
    return (losses.sum() / total if reduction == MEAN else losses.sum()), total


def nll_loss_backward(
    g: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int, total: Tensor
) -> Tensor:
    """-g at the targets, divided as the mean was and times the weights."""
    places, counts = weights_of(x, target, weight, ignore)
    share = -g / total if reduction == MEAN else -g
    share = share.expand(target.shape) if weight is None else share * counts
    share = torch.where(target != ignore, share, torch.zeros_like(share))
    return torch.zeros_like(x).scatter(min(1, x.ndim - 1), places, share.unsqueeze(min(1, x.ndim - 1)))


def xlogy(x: Tensor | float, y: Tensor | float) -> Tensor:
    """x * log(y), and 0 where x is."""
    x, y = (exactly(value) for value in (x, y))
    return torch.where((x == 0) & ~y.isnan(), torch.zeros_like(x), x * y.log())


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "mse_loss": Composed("mse_loss", mse_loss),
    "mse_loss_backward": Composed("mse_loss", mse_loss_backward),
    "smooth_l1_loss": Composed("smooth_l1_loss", smooth_l1_loss),
    "smooth_l1_loss_backward": Composed("smooth_l1_loss", smooth_l1_loss_backward),
    "huber_loss": Composed("huber_loss", huber_loss),
    "huber_loss_backward": Composed("huber_loss", huber_loss_backward),
    "binary_cross_entropy_with_logits": Composed("binary_cross_entropy_with_logits", binary_cross_entropy_with_logits),
    "binary_cross_entropy": Composed("binary_cross_entropy", binary_cross_entropy),
    "binary_cross_entropy_backward": Composed("binary_cross_entropy", binary_cross_entropy_backward),
    "soft_margin_loss": Composed("soft_margin_loss", soft_margin_loss),
    "soft_margin_loss_backward": Composed("soft_margin_loss", soft_margin_loss_backward),
    "multi_margin_loss": Composed("multi_margin_loss", multi_margin_loss),
    "multi_margin_loss_backward": Composed("multi_margin_loss", multi_margin_loss_backward),
    "nll_loss_forward": Composed("cross_entropy", nll_loss),
    "nll_loss_backward": Composed("cross_entropy", nll_loss_backward),
    "nll_loss2d_forward": Composed("cross_entropy", nll_loss),
    "nll_loss2d_backward": Composed("cross_entropy", nll_loss_backward),
    "xlogy": Composed("xlogy", xlogy),
}
