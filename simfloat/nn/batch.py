"""One image in the place of a batch."""

from __future__ import annotations

from collections.abc import Callable

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor


def of_images(function: Callable[[Tensor], Tensor], x: Operand) -> Tensor:
    """A function of images (N, C, H, W); of one (C, H, W) it is the same without N."""
    images = as_tensor(x)
    return function(images) if images.ndim != 3 else function(images.unsqueeze(0)).squeeze(0)
