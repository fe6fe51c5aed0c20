"""Convolutional layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simfloat.accumulate.geometry import Pair, read_padding, read_pair
from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.checks import check_flags, is_integer
from simfloat.nn.layer_arguments import apply_to_images, check_sizes
from simfloat.nn.module import Module
from simfloat.nn.seeds import generator_of

if TYPE_CHECKING:
    from simfloat.nn.seeds import Seed


class ConvolutionLayer(Module):
    """What convolutions of images or sequences and their transposes share: parameters, and two rounded operations."""

    kernel_size: tuple[int, ...]

    def __init__(self, in_channels: int, out_channels: int, groups: int, padding_mode: str) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"in_channels and out_channels must be multiples of groups, got {in_channels} and {out_channels} with "
                f"groups={groups}."
            )
        if padding_mode != "zeros":
            raise ValueError(f"padding_mode must be 'zeros', the only one that there is, got {padding_mode!r}.")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups

    def _start(self, outermost: int, inner: int, bias: bool, rng: Seed) -> None:
        """Draw weight (outermost, inner, *kernel_size) and bias, uniform in +-1 / sqrt(inner * its elements)."""
        check_flags(bias=bias)
        generator = generator_of(rng)
        bound = 1 / math.sqrt(inner * math.prod(self.kernel_size))
        self.weight = Parameter(generator.uniform(-bound, bound, (outermost, inner, *self.kernel_size)))
        self.bias = Parameter(generator.uniform(-bound, bound, self.out_channels)) if bias else None

    def _with_bias(self, contracted: Tensor) -> Tensor:
        return contracted if self.bias is None else contracted.add_bias(self.bias, axis=1)


class _ConvolutionOfImages(ConvolutionLayer):
    """What convolutions of images and their transposes share: options as pairs."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair,
        padding: int | Pair | str,
        dilation: int | Pair,
        groups: int,
        padding_mode: str,
    ) -> None:
        super().__init__(in_channels, out_channels, groups, padding_mode)
        self.kernel_size = read_pair("kernel_size", kernel_size, 1)
        self.stride, self.dilation = read_pair("stride", stride, 1), read_pair("dilation", dilation, 1)
        read_padding(padding, self.stride, self.dilation, self.kernel_size)
        self.padding = padding if isinstance(padding, str) else read_pair("padding", padding, 0)

    def extra_repr(self) -> str:
        """The arguments that made it."""
        arguments: dict[str, Any] = {"kernel_size": self.kernel_size, "stride": self.stride}
        usual = {"padding": (0, 0), "output_padding": (0, 0), "dilation": (1, 1), "groups": 1}
        arguments |= {name: value for name in usual if (value := getattr(self, name, usual[name])) != usual[name]}
        arguments |= {"bias": False} if self.bias is None else {}
        options = ", ".join(f"{name}={value}" for name, value in arguments.items())
        return f"{self.in_channels}, {self.out_channels}, {options}"


class Conv2d(_ConvolutionOfImages):
    """A convolution of images (N, in_channels, H, W), plus a bias: contraction and addition are each rounded.

    weight is (out_channels, in_channels / groups, h, w), bias (out_channels) or absent. Both start uniform in
    +-1 / sqrt(in_channels / groups * h * w), as in torch.nn, from `rng`, as in Linear. `padding` may be "same" or
    "valid". The order of each sum stands in :mod:`simfloat.autodiff.conv2d`.

    Raises ValueError for sizes that are no positive integers, for channels that are no multiples of `groups`, and for a
    `padding_mode` other than "zeros".

    Examples:
        >>> layer = sf.nn.Conv2d(1, 4, kernel_size=3, padding=1, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 1, 8, 8)))
        >>> y.shape
        (2, 4, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | str = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        rng: Seed = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self._start(out_channels, in_channels // groups, bias, rng)

    def forward(self, x: Operand) -> Tensor:
        """x (N, in_channels, H, W) -> (N, out_channels, rows, columns); the same without N for one image."""
        options = (self.stride, self.padding, self.dilation, self.groups)
        return apply_to_images(lambda images: self._with_bias(images.conv2d(self.weight, *options)), x)


class ConvTranspose2d(_ConvolutionOfImages):
    """The gradient of a convolution's images as a layer, plus a bias: contraction and addition are each rounded.

    weight is (in_channels, out_channels / groups, h, w), bias (out_channels) or absent. Both start uniform in
    +-1 / sqrt(out_channels / groups * h * w), as in torch.nn, from `rng`, as in Linear. Results have
    (H - 1) * stride - 2 * padding + dilation * (h - 1) + output_padding + 1 rows.

    Raises ValueError as Conv2d, and when it is called with an `output_padding` that no stride or dilation exceeds.

    Examples:
        >>> layer = sf.nn.ConvTranspose2d(4, 1, kernel_size=2, stride=2, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 1, 16, 16)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        output_padding: int | Pair = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Pair = 1,
        padding_mode: str = "zeros",
        *,
        rng: Seed = None,
    ) -> None:
        read_pair("padding", padding, 0)
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self.output_padding = read_pair("output_padding", output_padding, 0)
        self._start(in_channels, out_channels // groups, bias, rng)

    def forward(self, x: Operand, output_size: Sequence[int] | None = None) -> Tensor:
        """x (N, in_channels, H, W) -> (N, out_channels, rows, columns); the same without N for one image.

        output_size, the rows and columns that are wanted, takes the place of `output_padding`; leading sizes are left
        out of account. Raises ValueError unless it can be reached.
        """
        x = as_tensor(x)
        border = read_pair("padding", self.padding, 0)
        more = self.output_padding if output_size is None else self._padding_for(x.shape[-2:], border, output_size)
        options = (self.stride, border, more, self.groups, self.dilation)
        return apply_to_images(lambda images: self._with_bias(images.conv_transpose2d(self.weight, *options)), x)

    def _padding_for(self, sizes: Sequence[int], border: Pair, output_size: Sequence[int]) -> Pair:
        """The output_padding that gives results of this size."""
        least = [
            (size - 1) * step - 2 * width + gap * (places - 1) + 1
            for size, step, width, gap, places in zip(
                sizes, self.stride, border, self.dilation, self.kernel_size, strict=True
            )
        ]
        target_sizes = list(output_size)[-2:]
        fits = len(target_sizes) == 2 and all(
            is_integer(size, n, n + step - 1) for size, n, step in zip(target_sizes, least, self.stride, strict=True)
        )
        if not fits:
            most = [n + step - 1 for n, step in zip(least, self.stride, strict=True)]
            raise ValueError(f"output_size must be rows and columns from {least} to {most}, got {output_size!r}.")
        return target_sizes[0] - least[0], target_sizes[1] - least[1]
