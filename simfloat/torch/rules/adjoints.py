"""Ways back of movements: numbers that went to several places are added up where they came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from simfloat.torch.handlers import Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.scattering import add_at, element_numbers
from simfloat.torch.tensor_arrays import numbers_of

_aten = torch.ops.aten


class Adjoint(Rule):
    """The way back of a movement: `moved` carries it out on given numbers, in a tensor like the one that is reached."""

    def __init__(self, operation: str, movement: Callable[..., torch.Tensor], size_at: int) -> None:
        super().__init__(operation, self.compute)
        self.movement, self.size_at = movement, size_at  # which argument tells the size that is reached

    def compute(self, call: RuleCall, g: torch.Tensor, *options: Any) -> torch.Tensor:
        """The numbers of g, added up where each came from."""
        reached = options[self.size_at]
        x = g.new_zeros(reached.shape if isinstance(reached, torch.Tensor) else tuple(reached))
        # The movement itself says where each number went: it is carried out on the numbers of elements. PyTorch's
        # kernels of upsampling and im2col have no integers (torch 2.13); float64 holds all numbers of elements below
        # 2^53.
        places = self.movement(element_numbers(x).double(), *options).long()
        return add_at(call, x, places, numbers_of(g))


def padding_movement(name: str) -> Callable[..., torch.Tensor]:
    """A border of an image's own pixels."""
    pad = getattr(_aten, name)
    return lambda x, _, padding: pad(x, padding)


def upsampling_movement(name: str) -> Callable[..., torch.Tensor]:
    """An image whose pixels are repeated."""
    upsample = getattr(_aten, name)
    return lambda x, size, _, *scales: upsample(x, size, *scales)


def col2im(
    call: RuleCall, x: torch.Tensor, size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> torch.Tensor:  # fmt: skip
    """Images of the sums of windows that overlap; what lies in the border is left out."""
    image = torch.zeros(*x.shape[:-2], x.shape[-2] // math.prod(kernel), *size, dtype=x.dtype)
    # Numbers from 1 on: the border, which is filled with 0, has none.
    places = _aten.im2col((element_numbers(image) + 1).double(), kernel, dilation, padding, stride).long()
    inside = places > 0
    return add_at(call, image, places[inside] - 1, numbers_of(x)[inside.numpy()])


#: By PyTorch's name.
TABLE: dict[str, Any] = {
    "col2im": Rule("index", col2im),
    "unfold_backward": Adjoint("index", lambda x, _, *window: x.unfold(*window), 0),
    **{
        f"{name}_backward": Adjoint("index", padding_movement(name), 0)
        for name in (f"{way}_pad{axes}d" for way in ("reflection", "replication") for axes in (1, 2, 3))
    },
    **{
        f"{name}_backward": Adjoint("index", upsampling_movement(name), 1)
        for name in (f"{way}{axes}d" for way in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3))
    },
}
