"""Connectionist temporal classification, forward and backward: what PyTorch's operation takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfloat.formulas.ctc_formulas import Alignment, ctc_loss, ctc_loss_slope, pad_targets
from simfloat.formulas.rounded import Rounded
from simfloat.torch.formula import Formula

Lengths = Sequence[int] | NDArray[np.integer]


def alignment(x: NDArray, targets: NDArray, inputs: Lengths, lengths: Lengths, blank: int) -> Alignment:
    """The alignment of targets (N, S), or of all of them one after the other, with x (T, N, C).

    Raises ValueError for lengths and classes that there are not.
    """
    inputs, lengths = (np.asarray(each, np.int64).reshape(-1) for each in (inputs, lengths))
    count, width = x.shape[1], int(lengths.max()) if len(lengths) else 0
    most = targets.shape[-1] if targets.ndim == 2 else width
    for what, each, longest in (("input", inputs, x.shape[0]), ("target", lengths, most)):
        if len(each) != count or not all(0 <= length <= longest for length in each.tolist()):
            raise ValueError(
                f"ctc_loss takes {count} {what} lengths, one a sequence, from 0 to {longest}; got {each.tolist()}."
            )
    if targets.shape[:-1] not in ((), (count,)) or (targets.ndim == 1 and targets.size != lengths.sum()):
        needed = f"({count}, {width}), or {int(lengths.sum())} one after the other"
        raise ValueError(f"ctc_loss takes targets {needed}, as their lengths say; got {tuple(targets.shape)}.")
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
    """The formula of this name; losses that are infinite are left so."""
    return ctc_loss(u, x, alignment(x, targets, inputs, lengths, blank))


def slope(
    u: Rounded, g: NDArray, x: NDArray, targets: NDArray, inputs: Lengths, lengths: Lengths, losses: NDArray,
    alphas: NDArray, blank: int, zero_infinity: bool = False,
) -> NDArray:  # fmt: skip
    """The formula of this name."""
    return ctc_loss_slope(u, g, losses, alphas, x, alignment(x, targets, inputs, lengths, blank), zero_infinity)


#: By PyTorch's name.
TABLE: dict[str, Formula] = {
    "_ctc_loss": Formula("ctc_loss", loss),
    "_ctc_loss_backward": Formula("ctc_loss", slope),
}
