"""Connectionist temporal classification: Graves et al., ICML 2006."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_device_of
from simfloat.formulas.exponentials import logsumexp
from simfloat.formulas.rounded import Rounded, negative, where
from simfloat.formulas.slopes import ZERO
from simfloat.simulation.rows import add_rows

IMPOSSIBLE, NAN = np.array(-np.inf), np.array(np.nan)


class Alignment(NamedTuple):
    """What the targets alone determine: N sequences of them with a blank before, between and after them."""

    labels: NDArray[np.integer]  # (N, 2 S + 1): blank, first target, blank, second target, ..., blank
    skips: NDArray[np.bool_]  # (N, 2 S + 1): a target that may follow another one without the blank between
    inputs: NDArray[np.integer]  # (N,): how many steps each sequence has
    last: NDArray[np.integer]  # (N,): where the blank behind its last target stands

    @classmethod
    def of(cls, targets: NDArray, inputs: NDArray, lengths: NDArray, blank: int) -> Alignment:
        """That of targets (N, S), which are blanks behind a sequence's length."""
        labels = np.full((len(targets), 2 * targets.shape[1] + 1), blank)
        labels[:, 1::2] = targets
        skips = np.zeros(labels.shape, bool)
        skips[:, 3::2] = targets[:, 1:] != targets[:, :-1]
        return cls(labels, skips, inputs, 2 * lengths)

    def on_device_of(self, x: NDArray) -> Alignment:
        """Move the alignment to the device of the array."""
        return Alignment(*(on_device_of(each, x) for each in self))


def pad_targets(targets: NDArray[np.integer], lengths: NDArray[np.integer], blank: int) -> NDArray[np.integer]:
    """Targets (N, S), or all of them one after the other, as rows of the longest one's length, filled up by blanks."""
    width = int(lengths.max(initial=0))
    is_target = np.arange(width) < lengths[:, np.newaxis]
    rows = np.full(is_target.shape, blank)
    rows[is_target] = targets[:, :width][is_target] if targets.ndim == 2 else targets
    return rows


def ctc_loss(u: Rounded, x: NDArray, alignment: Alignment) -> tuple[NDArray, NDArray]:
    """-log of the probability of each sequence's targets, and the logarithms of those of all beginnings (N, T, places).

    x (T, N, C) are logarithms of probabilities. Section 4.1 of the paper, step by step: `logsumexp` of the one, two or
    three places before, + x. The last of the targets and the blank behind it are added up.
    """
    alignment = alignment.on_device_of(x)
    steps = _label_log_probabilities(u, x, alignment)
    running = alignment.inputs[:, np.newaxis]
    alphas = [where(u, np.arange(alignment.labels.shape[1], like=alignment.labels) < 2, steps[0], IMPOSSIBLE)]
    for t, emitted in enumerate(steps[1:], 1):
        before = alphas[-1]
        skipped = where(u, alignment.skips, _shift_rows(u, before, 2), IMPOSSIBLE)
        reached = u.add(_log_sum(u, before, _shift_rows(u, before, 1), skipped), emitted)
        alphas.append(where(u, running > t, reached, before))
    last = alignment.last[:, np.newaxis]
    final = u.with_format_of(np.take_along_axis(alphas[-1], last, 1)[:, 0], alphas[-1])
    ahead = u.with_format_of(np.take_along_axis(alphas[-1], np.maximum(last - 1, 0), 1)[:, 0], alphas[-1])
    total = _log_sum(u, where(u, alignment.last > 0, ahead, IMPOSSIBLE), final)
    # Without steps there is one way to spread no targets, and none to spread others.
    nothing = np.where(alignment.last > 0, IMPOSSIBLE[()], ZERO[()]).astype(total.dtype)
    total = where(u, alignment.inputs > 0, total, nothing)
    return negative(u, total), u.with_format_of(np.stack(alphas, 1), alphas[-1])


def ctc_loss_slope(
    u: Rounded, g: NDArray, losses: NDArray, alphas: NDArray, x: NDArray, alignment: Alignment, zero_infinity: bool
) -> NDArray:
    """g * (exp(x) - p), where p adds exp(a + b - x + loss) over the places of a class: the share of all ways there.

    a and b are the logarithms of the probabilities of all beginnings and ends. As in PyTorch that is the gradient if x
    is a log_softmax; nothing is passed on after the last step. Where a loss is infinite, it is NaN for every class, and
    zero with zero_infinity.
    """
    alignment = alignment.on_device_of(x)
    steps, places = (
        _label_log_probabilities(u, x, alignment),
        np.arange(alignment.labels.shape[1], like=alignment.labels),
    )
    may_skip = np.zeros_like(alignment.skips)
    may_skip[:, :-2] = alignment.skips[:, 2:]
    last, running = alignment.last[:, np.newaxis], alignment.inputs[:, np.newaxis]
    is_end = (places == last) | (places == last - 1)
    after, ends = np.full_like(alphas[:, 0], -np.inf), []
    for t in reversed(range(len(steps))):
        skipped = where(u, may_skip, _shift_rows(u, after, -2), IMPOSSIBLE)
        ways = u.add(_log_sum(u, after, _shift_rows(u, after, -1), skipped), steps[t])
        first = where(u, is_end, steps[t], IMPOSSIBLE)
        after = where(u, running == t + 1, first, where(u, running > t, ways, IMPOSSIBLE))
        ends.append(after)
    both = u.add(np.moveaxis(alphas, 1, 0), u.with_format_of(np.stack(ends[::-1]), *ends))
    share = u.apply("exp", u.add(u.subtract(both, steps), losses[:, np.newaxis]))
    share = where(u, (both == -np.inf) & np.isfinite(losses)[:, np.newaxis], ZERO.astype(share.dtype), share)
    slope = u.subtract(u.apply("exp", x), _by_class(u, share, alignment.labels, x.shape[2]))
    is_lost = np.isinf(losses)[:, np.newaxis]
    slope = where(u, is_lost, NAN, slope)
    slope = where(u, np.arange(len(x), like=alignment.inputs)[:, np.newaxis, np.newaxis] < running, slope, ZERO)
    slopes = u.multiply(g[:, np.newaxis], slope)
    return where(u, is_lost, np.zeros_like(slopes), slopes) if zero_infinity else slopes


def _label_log_probabilities(u: Rounded, x: NDArray, alignment: Alignment) -> NDArray:
    """For every step the logarithms of the labels' probabilities, (T, N, places)."""
    labels = np.broadcast_to(alignment.labels, (len(x), *alignment.labels.shape))
    return u.with_format_of(np.take_along_axis(x, labels, 2), x)


def _shift_rows(u: Rounded, x: NDArray, count: int) -> NDArray:
    """Rows moved by so many places, to the right for a positive number, -inf in the places that become free."""
    moved = np.full_like(x, -np.inf)
    if count > 0:
        moved[:, count:] = x[:, :-count]
    else:
        moved[:, :count] = x[:, -count:]
    return u.with_format_of(moved, x)


def _log_sum(u: Rounded, *ways: NDArray) -> NDArray:
    """The logarithm of the sum of probabilities that are given by logarithms."""
    return u.composite("logsumexp", logsumexp, u.with_format_of(np.stack(ways), *ways), axes=(0,))


def _by_class(u: Rounded, share: NDArray, labels: NDArray[np.integer], classes: int) -> NDArray:
    """The sums of shares (T, N, places) over the places of each class, (T, N, classes)."""
    rows = int(np.prod(share.shape[:2]))
    first = np.arange(rows, like=labels).reshape(*share.shape[:2], 1) * classes
    sums = add_rows(u.for_operation("index"), share.reshape(-1, 1), (labels + first).reshape(-1), (rows * classes, 1))
    return sums.reshape(*share.shape[:2], classes)
