"""Connectionist temporal classification, forward and backward, in PyTorch's operations: Graves et al., ICML 2006."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from simfloat.torch.handlers import Composed

Tensor = torch.Tensor
Lengths = Sequence[int] | Tensor


class Alignment(NamedTuple):
    """What of a problem is known beforehand: N sequences of targets with a blank before, between and after them."""

    labels: Tensor  # (N, 2 S + 1): blank, first target, blank, second target, ..., blank
    skips: Tensor  # (N, 2 S + 1): a target that may follow another one without the blank between
    inputs: Tensor  # (N,): how many steps each sequence has
    last: Tensor  # (N,): where the blank behind its last target stands


def alignment(x: Tensor, targets: Tensor, inputs: Lengths, lengths: Lengths, blank: int) -> Alignment:
    """The alignment of targets (N, S), or of all of them one after the other, with x (T, N, C).

    Raises ValueError for lengths and classes that there are not.
    """
    inputs, lengths = (torch.as_tensor(each, dtype=torch.int64).reshape(-1) for each in (inputs, lengths))
    count, width = x.shape[1], int(lengths.max()) if len(lengths) else 0
    most = targets.shape[-1] if targets.ndim == 2 else width
    for what, each, longest in (("input", inputs, x.shape[0]), ("target", lengths, most)):
        if len(each) != count or not all(0 <= length <= longest for length in each.tolist()):
            raise ValueError(
                f"ctc_loss takes {count} {what} lengths, one a sequence, from 0 to {longest}; got {each.tolist()}."
            )
    if targets.shape[:-1] not in ((), (count,)) or (targets.ndim == 1 and targets.numel() != lengths.sum()):
        needed = f"({count}, {width}), or {int(lengths.sum())} one after the other"
        raise ValueError(f"ctc_loss takes targets {needed}, as their lengths say; got {tuple(targets.shape)}.")
    if not 0 <= blank < x.shape[2]:
        raise ValueError(f"ctc_loss takes a blank from 0 to {x.shape[2] - 1}, got {blank}.")
    if targets.ndim == 1:
        targets = torch.nn.utils.rnn.pad_sequence(targets.split(lengths.tolist()), batch_first=True)
    named = torch.where(torch.arange(width) < lengths.unsqueeze(1), targets[:, :width], blank)
    if named.numel() and not 0 <= int(named.min()) <= int(named.max()) < x.shape[2]:
        raise ValueError(
            f"ctc_loss takes targets from 0 to {x.shape[2] - 1}, got {sorted(set(named.ravel().tolist()))}."
        )
    labels = torch.full((len(lengths), 2 * width + 1), blank)
    labels[:, 1::2] = named
    skips = torch.zeros(labels.shape, dtype=torch.bool)
    skips[:, 3::2] = named[:, 1:] != named[:, :-1]
    return Alignment(labels, skips, inputs, 2 * lengths)


def shifted(x: Tensor, count: int) -> Tensor:
    """Rows moved by so many places, to the right for a positive number, -inf where nothing comes from."""
    edge = torch.full_like(x[:, : abs(count)], -torch.inf)
    return torch.cat([edge, x[:, :-count]] if count > 0 else [x[:, -count:], edge], 1)


def added(*ways: Tensor) -> Tensor:
    """The logarithm of the sum of probabilities that are given by logarithms."""
    return torch.logsumexp(torch.stack(ways), 0)


def chosen(where: Tensor, x: Tensor) -> Tensor:
    """x, and -inf elsewhere."""
    return torch.where(where, x, torch.full_like(x, -torch.inf))


def ctc_loss(
    x: Tensor, targets: Tensor, inputs: Lengths, lengths: Lengths, blank: int = 0, zero_infinity: bool = False
) -> tuple[Tensor, Tensor]:
    """-log of the probability of each sequence's targets, and the logarithms of those of all beginnings (N, T, places).

    These follow step by step: `logsumexp` of the one, two or three places before, + x.
    """
    known = alignment(x, targets, inputs, lengths, blank)
    steps = emitted(x, known)
    places = torch.arange(known.labels.shape[1])
    alphas = [chosen(places < 2, steps[0])]
    for t, now in enumerate(steps[1:], 1):
        before = alphas[-1]
        reached = added(before, shifted(before, 1), chosen(known.skips, shifted(before, 2))) + now
        alphas.append(torch.where(known.inputs.unsqueeze(1) > t, reached, before))
    total = added(chosen(known.last > 0, at(alphas[-1], known.last - 1)), at(alphas[-1], known.last))
    # Without steps there is one way to spread no targets, and none to spread others.
    nothing = torch.where(known.last > 0, -torch.inf, 0.0).to(x.dtype)
    total = torch.where(known.inputs == 0, nothing, total)
    return -total, torch.stack(alphas, 1)


def ctc_loss_backward(
    g: Tensor, x: Tensor, targets: Tensor, inputs: Lengths, lengths: Lengths, losses: Tensor, alphas: Tensor,
    blank: int, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """g * (exp(x) - p), where p adds exp(a + b - x + loss) over the places of a class: the share of all ways there.

    a and b are the logarithms of the probabilities of all beginnings and ends. As in PyTorch that is the gradient if x
    is a log_softmax; nothing is passed on after the last step, nor, with zero_infinity, where a loss is infinite.
    """
    known = alignment(x, targets, inputs, lengths, blank)
    steps, places = emitted(x, known), torch.arange(known.labels.shape[1])
    may_skip = torch.cat([known.skips[:, 2:], torch.zeros_like(known.skips[:, :2])], 1)[:, : len(places)]
    is_end = (places == known.last.unsqueeze(1)) | (places == known.last.unsqueeze(1) - 1)
    after, found = torch.full_like(alphas[:, 0], -torch.inf), []
    for t in reversed(range(len(steps))):
        ways = added(after, shifted(after, -1), chosen(may_skip, shifted(after, -2))) + steps[t]
        first = chosen(is_end, steps[t])
        behind = known.inputs.unsqueeze(1) == t + 1
        after = torch.where(behind, first, chosen(known.inputs.unsqueeze(1) > t, ways))
        both = alphas[:, t] + after
        share = (both - steps[t] + losses.unsqueeze(1)).exp()
        share = torch.where((both == -torch.inf) & losses.isfinite().unsqueeze(1), torch.zeros_like(share), share)
        total = torch.zeros_like(x[t]).scatter_add(1, known.labels, share)
        found.append(torch.where(known.inputs.unsqueeze(1) > t, x[t].exp() - total, torch.zeros_like(total)))
    slope = g.unsqueeze(1) * torch.stack(found[::-1])
    return torch.where(losses.isinf().unsqueeze(1), torch.zeros_like(slope), slope) if zero_infinity else slope


def emitted(x: Tensor, known: Alignment) -> list[Tensor]:
    """For every step the logarithms of the labels' probabilities, (N, places)."""
    return list(x.gather(2, known.labels.expand(len(x), -1, -1)).unbind())


def at(x: Tensor, places: Tensor) -> Tensor:
    """The number of each row at a place."""
    return x.gather(1, places.clamp(min=0).unsqueeze(1)).squeeze(1)


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "_ctc_loss": Composed("ctc_loss", ctc_loss),
    "_ctc_loss_backward": Composed("ctc_loss", ctc_loss_backward),
}
