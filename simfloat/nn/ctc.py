"""Connectionist temporal classification: Graves et al., ICML 2006."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import on_cpu, on_device_of
from simfloat.autodiff import Tensor, where
from simfloat.autodiff.by_formula import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, compose, tensor_of
from simfloat.checks import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.formulas import ctc_formulas
from simfloat.formulas.rounded import Rounded
from simfloat.nn.layer_arguments import as_indices
from simfloat.nn.losses import check_reduction


@in_usual_environment
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
    least 1), and takes the mean; ``"sum"`` adds them; ``"none"`` leaves them. Targets that fit no way have an infinite
    loss and a gradient of NaN; `zero_infinity` makes both zero.

    The logarithms of the probabilities of all beginnings follow from each other step by step, as in section 4.1 of the
    paper: `logsumexp` of the one, two or three places before, + log_probs, each operation rounded. Their format needs
    an infinity, for what is impossible. The gradient is PyTorch's, which is right where log_probs is a log_softmax: the
    probabilities of the classes less the share of all ways there.

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
    alignment = _alignment(shape, targets, input_lengths, target_lengths, int(blank))

    def slope(u: Rounded, g: NDArray, outputs: tuple[NDArray, NDArray], x: NDArray) -> NDArray:
        return ctc_formulas.ctc_loss_slope(u, g, *outputs, x, alignment, zero_infinity)

    def body(x: Tensor) -> Tensor:
        formula = partial(ctc_formulas.ctc_loss, alignment=alignment)
        losses = tensor_of(composite_operation("ctc_loss", formula, (slope,), x.reshape(shape)))
        if zero_infinity:
            losses = where(losses == np.inf, 0.0, losses)
        if reduction == "mean":
            return (losses / on_device_of(np.maximum(alignment.last // 2, 1).astype(np.float32), x.numbers)).mean()
        return losses.sum() if reduction == "sum" else losses.reshape(() if is_single else shape[1:2])

    return compose("ctc_loss", body, x)


def _alignment(
    shape: tuple[int, int, int], targets: ArrayLike, input_lengths: ArrayLike, target_lengths: ArrayLike, blank: int
) -> ctc_formulas.Alignment:
    steps, count, classes = shape
    inputs = _lengths(input_lengths, "Input lengths", count, steps)
    named = on_cpu(as_indices(targets, classes, "Targets"))
    most = named.shape[-1] if named.ndim else 0
    lengths = _lengths(target_lengths, "Target lengths", count, most)
    if not (named.ndim == 2 and len(named) == count or named.ndim == 1 and lengths.sum() == named.size):
        raise ValueError(
            f"Targets are (N, S) = ({count}, at least {lengths.max(initial=0)}), or {lengths.sum()} one after the "
            f"other as the target lengths say; got shape {named.shape}."
        )
    rows = ctc_formulas.pad_targets(named, lengths, blank)
    if (rows[np.arange(rows.shape[1]) < lengths[:, np.newaxis]] == blank).any():
        raise ValueError(f"Targets are classes other than the blank, {blank}.")
    return ctc_formulas.Alignment.of(rows, inputs, lengths, blank)


def _lengths(lengths: ArrayLike, what: str, count: int, most: int) -> NDArray[np.integer]:
    """A length for each sequence, up to the most that there can be."""
    numbers = on_cpu(as_indices(lengths, most + 1, what))
    if numbers.size != count or numbers.ndim > 1:
        raise ValueError(f"{what} are integers, one for each of {count} sequences, got shape {numbers.shape}.")
    return numbers.reshape(count)
