"""Connectionist temporal classification: Graves et al., ICML 2006."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import beside, on_cpu
from simfloat.autodiff import Tensor, stack, where
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose
from simfloat.checks import check_flags, is_integer
from simfloat.nn.layer_arguments import as_indices
from simfloat.nn.losses import check_reduction


class Alignment(NamedTuple):
    """What of a problem is known beforehand: N sequences of targets with a blank before, between and after them."""

    labels: NDArray[np.integer]  # (N, 2 S + 1): blank, first target, blank, second target, ..., blank
    skips: NDArray[np.bool_]  # (N, 2 S + 1): a target that may follow another one without the blank between
    inputs: NDArray[np.integer]  # (N,): how many steps each sequence has
    targets: NDArray[np.integer]  # (N,): how many targets


def ctc_loss(
    log_probs: Operand,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of the targets, summed over all ways to spread them over the steps.

    log_probs (T, N, C), or (T, C) for one sequence, are logarithms of probabilities, such as log_softmax gives. targets
    hold class numbers other than `blank`, (N, S) with whatever behind a target's length, or all of them one after the
    other. The lengths are (N,), integers for one sequence. ``"mean"`` divides each loss by its target's length (at
    least 1), and takes the mean; ``"sum"`` adds them; ``"none"`` leaves them. `zero_infinity` makes the losses of
    targets that fit no way zero; they have no gradient either way.

    The logarithms of the probabilities of all beginnings follow from each other step by step, as in section 4.1 of the
    paper: `logsumexp` of the one, two or three places before, + log_probs, each operation rounded. Their format needs
    an infinity, for what is impossible.

    Raises ValueError for shapes that do not fit, and for classes and lengths out of range.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.ctc_loss(np.log(np.full((4, 1, 3), 1 / 3)), [[1, 2]], [4], [2])
        >>> loss.item()
        0.8431994915008545
    """
    check_flags(zero_infinity=zero_infinity)
    check_reduction(reduction)
    x = as_tensor(log_probs)
    if x.ndim not in (2, 3) or not x.size:
        raise ValueError(f"ctc_loss takes log_probs (T, N, C) or (T, C), at least one step of one, got {x.shape}.")
    is_single = x.ndim == 2
    if not is_integer(blank, 0, x.shape[-1] - 1):
        raise ValueError(f"blank is a class, from 0 to {x.shape[-1] - 1}, got {blank!r}.")
    shape = (x.shape[0], 1 if is_single else x.shape[1], x.shape[-1])
    known = _alignment(shape, targets, input_lengths, target_lengths, int(blank))

    def body(x: Tensor) -> Tensor:
        losses = -_log_likelihood(x.reshape(shape), known)
        if zero_infinity:
            losses = where(losses == np.inf, 0.0, losses)
        if reduction == "mean":
            return (losses / beside(np.maximum(known.targets, 1).astype(np.float32), x.numbers)).mean()
        return losses.sum() if reduction == "sum" else losses.reshape(() if is_single else shape[1:2])

    return compose("ctc_loss", body, x)


def _log_likelihood(x: Tensor, known: Alignment) -> Tensor:
    """The logarithm of the probability of each sequence's targets: (T, N, C) -> (N,)."""
    count, places = known.labels.shape
    steps = x[:, np.arange(count)[:, np.newaxis], known.labels].unbind()
    alpha = where(np.arange(places) < 2, steps[0], -np.inf)
    for t, emitted in enumerate(steps[1:], 1):
        moved = alpha.pad((2, 0), -np.inf)
        skipped = where(known.skips, moved[:, :-2], -np.inf)
        reached = stack([alpha, moved[:, 1:-1], skipped]).logsumexp(0) + emitted
        alpha = reached if t < known.inputs.min() else where((t < known.inputs)[:, np.newaxis], reached, alpha)
    # The last of the targets, or the blank behind it.
    last, rows = 2 * known.targets, np.arange(count)
    before = where(known.targets > 0, alpha[rows, np.maximum(last - 1, 0)], -np.inf)
    result = stack([before, alpha[rows, last]]).logsumexp(0)
    if known.inputs.all():
        return result
    # Without steps there is one way to spread no targets, and none to spread others.
    result = where((known.inputs == 0) & (known.targets == 0), 0.0, result)
    return where((known.inputs == 0) & (known.targets > 0), -np.inf, result)


def _alignment(
    shape: tuple[int, int, int], targets: ArrayLike, input_lengths: ArrayLike, target_lengths: ArrayLike, blank: int
) -> Alignment:
    steps, count, classes = shape
    inputs = _lengths(input_lengths, "Input lengths", count, steps)
    named = on_cpu(as_indices(targets, classes, "Targets"))
    most = named.shape[-1] if named.ndim else 0
    lengths = _lengths(target_lengths, "Target lengths", count, most)
    width = int(lengths.max(initial=0))
    padded = np.full((count, width), blank)
    taken = np.arange(width) < lengths[:, np.newaxis]
    if named.ndim == 2 and len(named) == count:
        padded[taken] = named[:, :width][taken]
    elif named.ndim == 1 and lengths.sum() == named.size:
        padded[taken] = named
    else:
        raise ValueError(
            f"Targets are (N, S) = ({count}, at least {width}), or {lengths.sum()} one after the other as the target "
            f"lengths say; got shape {named.shape}."
        )
    if (padded[taken] == blank).any():
        raise ValueError(f"Targets are classes other than the blank, {blank}.")
    labels = np.full((count, 2 * width + 1), blank)
    labels[:, 1::2] = padded
    skips = np.zeros(labels.shape, bool)
    skips[:, 3::2] = padded[:, 1:] != padded[:, :-1]
    return Alignment(labels, skips, inputs, lengths)


def _lengths(given: ArrayLike, what: str, count: int, most: int) -> NDArray[np.integer]:
    """A length for each sequence, up to the most that there can be."""
    lengths = on_cpu(as_indices(given, most + 1, what))
    if lengths.size != count or lengths.ndim > 1:
        raise ValueError(f"{what} are integers, one for each of {count} sequences, got shape {lengths.shape}.")
    return lengths.reshape(count)
