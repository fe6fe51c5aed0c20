"""The step from images to vectors."""

from __future__ import annotations

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.nn.module import Module


class Flatten(Module):
    """The axes from `start_dim` to `end_dim` as one; by default all but the first, which counts examples.

    Examples:
        >>> layer = sf.nn.Flatten()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 256)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, H, W) -> (N, C * H * W), as an example."""
        return as_tensor(x).flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Its axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
