"""Convolution and pooling layers for images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simfloat.autodiff import Parameter, Tensor, stack
from simfloat.autodiff.record import Operand
from simfloat.autodiff.reductions import adaptive_largest, check_divisor
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.common import check_flags, is_integer
from simfloat.nn.arguments import apply_to_batch, check_sizes, generator_of
from simfloat.nn.module import Module
from simfloat.sums.geometry import read_padding, read_sizes

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed

#: An option of images or volumes: an integer, or a number for each axis.
Sizes = int | tuple[int, ...]

#: The size of a result: an integer for all axes or a number for each axis; None keeps the size of x.
OutputSize = int | tuple[int | None, ...] | None


class ConvolutionLayer(Module):
    """The common base of convolutions and transposed convolutions: parameters, and two rounded operations."""

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
            raise ValueError(f"padding_mode must be 'zeros', the only supported one, got {padding_mode!r}.")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups

    def _start(self, outermost: int, inner: int, bias: bool, rng: Seed) -> None:
        """Draw weight (outermost, inner, *kernel_size) and bias, uniform in +-1 / sqrt(inner * kernel elements)."""
        check_flags(bias=bias)
        generator = generator_of(rng)
        bound = 1 / math.sqrt(inner * math.prod(self.kernel_size))
        self.weight = Parameter(generator.uniform(-bound, bound, (outermost, inner, *self.kernel_size)))
        self.bias = Parameter(generator.uniform(-bound, bound, self.out_channels)) if bias else None

    def _with_bias(self, contracted: Tensor) -> Tensor:
        return contracted if self.bias is None else contracted.add_bias(self.bias, axis=1)


class ConvolutionOfImages(ConvolutionLayer):
    """The common base of convolutions and transposed convolutions of images or volumes."""

    axes = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes | str,
        dilation: Sizes,
        groups: int,
        padding_mode: str,
    ) -> None:
        super().__init__(in_channels, out_channels, groups, padding_mode)
        self.kernel_size = read_sizes("kernel_size", kernel_size, 1, self.axes)
        self.stride = read_sizes("stride", stride, 1, self.axes)
        self.dilation = read_sizes("dilation", dilation, 1, self.axes)
        read_padding(padding, self.stride, self.dilation, self.kernel_size)
        self.padding = padding if isinstance(padding, str) else read_sizes("padding", padding, 0, self.axes)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        arguments: dict[str, Any] = {"kernel_size": self.kernel_size, "stride": self.stride}
        usual: dict[str, Any] = dict.fromkeys(("padding", "output_padding"), (0,) * self.axes)
        usual |= {"dilation": (1,) * self.axes, "groups": 1}
        arguments |= {name: value for name in usual if (value := getattr(self, name, usual[name])) != usual[name]}
        arguments |= {"bias": False} if self.bias is None else {}
        options = ", ".join(f"{name}={value}" for name, value in arguments.items())
        return f"{self.in_channels}, {self.out_channels}, {options}"


class PlainConvolutionOfImages(ConvolutionOfImages):
    """The common base of convolutions of images or volumes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        rng: Seed = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self._start(out_channels, in_channels // groups, bias, rng)


class TransposedConvolutionOfImages(ConvolutionOfImages):
    """The common base of transposed convolutions of images or volumes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        *,
        rng: Seed = None,
    ) -> None:
        read_sizes("padding", padding, 0, self.axes)
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self.output_padding = read_sizes("output_padding", output_padding, 0, self.axes)
        self._start(in_channels, out_channels // groups, bias, rng)

    def _options(self, sizes: Sequence[int], output_size: Sequence[int] | None) -> tuple[Any, ...]:
        """Return stride, padding, output padding, groups and dilation for images of this size."""
        border = read_sizes("padding", self.padding, 0, self.axes)
        more = self.output_padding if output_size is None else self._padding_for(sizes, border, output_size)
        return self.stride, border, more, self.groups, self.dilation

    def _padding_for(
        self, sizes: Sequence[int], border: tuple[int, ...], output_size: Sequence[int]
    ) -> tuple[int, ...]:
        """Return the output_padding that gives results of this size."""
        least = [
            (size - 1) * step - 2 * width + gap * (places - 1) + 1
            for size, step, width, gap, places in zip(
                sizes, self.stride, border, self.dilation, self.kernel_size, strict=True
            )
        ]
        target_sizes = list(output_size)[-self.axes :]
        fits = len(target_sizes) == self.axes and all(
            is_integer(size, n, n + step - 1) for size, n, step in zip(target_sizes, least, self.stride, strict=True)
        )
        if not fits:
            most = [n + step - 1 for n, step in zip(least, self.stride, strict=True)]
            needed = "rows and columns" if self.axes == 2 else "slices, rows and columns"
            raise ValueError(f"output_size must be {needed} from {least} to {most}, got {output_size!r}.")
        return tuple(size - n for size, n in zip(target_sizes, least, strict=True))


class Conv2d(PlainConvolutionOfImages):
    """Convolution of images plus bias; the contraction and the addition are each rounded.

    Each sum runs over (input channel, kernel row, kernel column); see :mod:`simfloat.autodiff.contractions`. weight is
    (out_channels, in_channels / groups, h, w) and bias is (out_channels). Both start uniform in +-1 / sqrt(in_channels
    / groups * h * w), as in torch.nn.

    Parameters:
        in_channels: the number of channels of x (N, in_channels, H, W).
        out_channels: the number of channels of the result.
        kernel_size: the height and width of the kernel, an integer or a pair.
        stride: the step between windows, an integer or a pair.
        padding: the number of zero rows and columns on each side, or "same" or "valid".
        dilation: the step between kernel elements, an integer or a pair.
        groups: the number of groups of channels, which are convolved separately.
        bias: False for a layer without bias.
        padding_mode: must be "zeros".
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if the channels are not multiples of `groups`; if padding_mode
            is not "zeros".

    Examples:
        >>> layer = sf.nn.Conv2d(1, 4, kernel_size=3, padding=1, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 1, 8, 8)))
        >>> y.shape
        (2, 4, 8, 8)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, in_channels, H, W) to (N, out_channels, rows, columns); for one image, without N."""
        options: tuple[Any, ...] = (self.stride, self.padding, self.dilation, self.groups)
        return apply_to_batch(lambda images: self._with_bias(images.conv2d(self.weight, *options)), x, 2)


class ConvTranspose2d(TransposedConvolutionOfImages):
    """Transposed convolution of images plus bias; the contraction and the addition are each rounded.

    The contraction is the gradient of Conv2d with respect to its images. weight is (in_channels, out_channels / groups,
    h, w) and bias is (out_channels). Both start uniform in +-1 / sqrt(out_channels / groups * h * w), as in torch.nn.
    The result has (H - 1) * stride - 2 * padding + dilation * (h - 1) + output_padding + 1 rows.

    Parameters:
        in_channels: the number of channels of x (N, in_channels, H, W).
        out_channels: the number of channels of the result.
        kernel_size: the height and width of the kernel, an integer or a pair.
        stride: the step between the pixels of x in the result, an integer or a pair.
        padding: the number of rows and columns that are removed on each side of the result.
        output_padding: the number of rows and columns that are added at the end, an integer or a pair.
        groups: the number of groups of channels, which are convolved separately.
        bias: False for a layer without bias.
        dilation: the step between kernel elements, an integer or a pair.
        padding_mode: must be "zeros".
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if the channels are not multiples of `groups`; if padding_mode
            is not "zeros"; when called, if output_padding is smaller than neither the stride nor the dilation.

    Examples:
        >>> layer = sf.nn.ConvTranspose2d(4, 1, kernel_size=2, stride=2, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 1, 16, 16)
    """

    def forward(self, x: Operand, output_size: Sequence[int] | None = None) -> Tensor:
        """Map x (N, in_channels, H, W) to (N, out_channels, rows, columns); for one image, without N.

        `output_size` gives the wanted rows and columns, and replaces `output_padding`; any sizes before them are
        ignored.

        Raises:
            ValueError: if the layer cannot produce `output_size`.
        """
        x = as_tensor(x)
        options = self._options(x.shape[-2:], output_size)
        return apply_to_batch(lambda images: self._with_bias(images.conv_transpose2d(self.weight, *options)), x, 2)


class MaxPoolLayer(Module):
    """The common base of max pooling of images and of volumes."""

    axes = 2

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        check_flags(ceil_mode=ceil_mode)
        check_no_indices(f"MaxPool{self.axes}d", "pixels", return_indices)
        self.kernel_size, self.stride, self.padding = _windows(kernel_size, stride, padding, self.axes)
        self.dilation, self.ceil_mode = read_sizes("dilation", dilation, 1, self.axes), bool(ceil_mode)

    def _options(self) -> tuple[Any, ...]:
        return self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class AvgPoolLayer(Module):
    """The common base of average pooling of images and of volumes."""

    axes = 2

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        check_flags(ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        check_divisor(divisor_override)
        self.kernel_size, self.stride, self.padding = _windows(kernel_size, stride, padding, self.axes)
        self.ceil_mode, self.count_include_pad = bool(ceil_mode), bool(count_include_pad)
        self.divisor_override = divisor_override

    def _options(self) -> tuple[Any, ...]:
        windows = self.kernel_size, self.stride, self.padding
        return *windows, self.ceil_mode, self.count_include_pad, self.divisor_override

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveLayer(Module):
    """The common base of adaptive pooling of images and of volumes."""

    axes = 2

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size,) * self.axes
        if len(sizes) != self.axes or not all(size is None or is_integer(size, 1) for size in sizes):
            needed = "pair" if self.axes == 2 else "triple"
            raise ValueError(f"output_size is a positive integer, None, or a {needed} of them, got {output_size!r}.")
        self.output_size = tuple(sizes)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"output_size={self.output_size}"


class MaxPool2d(MaxPoolLayer):
    """The largest pixel of every window; the gradient goes to the first of the largest pixels.

    If windows overlap, their gradients are added through the policy's `reduce`, in row-major order of the windows.

    Parameters:
        kernel_size: the height and width of the window, an integer or a pair.
        stride: the step between windows, an integer or a pair; by default kernel_size.
        padding: the number of rows and columns added on each side; they never contain the largest pixel.
        dilation: the step between the pixels of a window, an integer or a pair.
        return_indices: must be False.
        ceil_mode: True if the number of windows is rounded up instead of down.

    Raises:
        ValueError: if return_indices is true; when called, if x has another shape or the window does not fit.

    Examples:
        >>> layer = sf.nn.MaxPool2d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 4, 4)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, H, W) to (N, C, rows, columns); for one image, without N."""
        return apply_to_batch(lambda images: images.max_pool2d(*self._options()), x, 2)


class AvgPool2d(AvgPoolLayer):
    """The sum of every window through the policy's `reduce`, divided by the number of its pixels.

    Parameters:
        kernel_size: the height and width of the window, an integer or a pair.
        stride: the step between windows, an integer or a pair; by default kernel_size.
        padding: the number of zero rows and columns added on each side.
        ceil_mode: True if the number of windows is rounded up instead of down.
        count_include_pad: False if pixels of the padding do not count in the divisor.
        divisor_override: a positive integer that replaces the number of pixels as the divisor.

    Raises:
        ValueError: if divisor_override is not a positive integer; when called, if x has another shape or the window
            does not fit.

    Examples:
        >>> layer = sf.nn.AvgPool2d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 4, 4)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, H, W) to (N, C, rows, columns); for one image, without N."""
        return apply_to_batch(lambda images: images.avg_pool2d(*self._options()), x, 2)


class AdaptiveAvgPool2d(AdaptiveLayer):
    """Averages of windows, with the window sizes chosen so that the result has the size `output_size`.

    Windows are those of torch.nn: along a side of s pixels, window i of n begins at floor(i * s / n) and ends before
    ceil((i + 1) * s / n). If all windows have one size and none overlap, the result is that of AvgPool2d. Otherwise
    each average is a separate mean.

    Parameters:
        output_size: an integer or a pair (rows, columns); 1 gives one average per channel. None keeps the size of x.

    Raises:
        ValueError: if a size is neither a positive integer nor None; when called, if x is not an image.

    Examples:
        >>> layer = sf.nn.AdaptiveAvgPool2d(1)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 1, 1)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, H, W) to (N, C, rows, columns); for one image, without N."""
        return apply_to_batch(lambda images: adaptive_averages(images, self.output_size), x, 2)


class AdaptiveMaxPool2d(AdaptiveLayer):
    """The largest pixels of windows, with the window sizes chosen so that the result has the size `output_size`.

    The windows are those of AdaptiveAvgPool2d. The gradient goes to the first of the largest pixels; a pixel of several
    windows gets their gradients, added through `reduce`. In policies the operation is called `max_pool2d`.

    Parameters:
        output_size: an integer or a pair (rows, columns). None keeps the size of x.
        return_indices: must be False.

    Raises:
        ValueError: if a size is neither a positive integer nor None; if return_indices is true; when called, if x is
            not an image.

    Examples:
        >>> layer = sf.nn.AdaptiveMaxPool2d((2, 4))
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 2, 4)
    """

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        check_no_indices("AdaptiveMaxPool2d", "pixels", return_indices)
        super().__init__(output_size)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, H, W) to (N, C, rows, columns); for one image, without N."""
        return apply_to_batch(lambda images: adaptive_maxima(images, self.output_size), x, 2)


def adaptive_averages(x: Tensor, output_size: Sequence[int | None]) -> Tensor:
    """Average images (N, C, H, W) to `output_size` rows and columns; None keeps the size of x."""
    counts = adaptive_counts("AdaptiveAvgPool", x, output_size)
    sizes = x.shape[2:]
    if not any(size % n for size, n in zip(sizes, counts, strict=True)):
        return x.avg_pool2d((sizes[0] // counts[0], sizes[1] // counts[1]))
    rows, columns = (
        [slice(i * size // n, -(-(i + 1) * size // n)) for i in range(n)] for size, n in zip(sizes, counts, strict=True)
    )
    averages = [x[:, :, row, column].mean((2, 3)) for row in rows for column in columns]
    return stack(averages, 2).reshape(*x.shape[:2], *counts)


def adaptive_maxima(x: Tensor, output_size: Sequence[int | None]) -> Tensor:
    """Return the largest elements of adaptive windows of images or volumes; None keeps the size of x."""
    return tensor_of(adaptive_largest(x, adaptive_counts("AdaptiveMaxPool", x, output_size)))


def adaptive_counts(name: str, x: Tensor, output_size: Sequence[int | None]) -> list[int]:
    """Return the number of windows along each axis; ValueError unless x has a batch, channels and these axes."""
    axes = len(output_size)
    if x.ndim != axes + 2:
        needed = "images (N, C, H, W)" if axes == 2 else "volumes (N, C, D, H, W)"
        raise ValueError(f"{name}{axes}d needs {needed}, got shape {x.shape}.")
    return [size if count is None else count for count, size in zip(output_size, x.shape[2:], strict=True)]


def check_no_indices(name: str, elements: str, return_indices: Any) -> None:
    """Raise ValueError if a layer is asked for the indices of the largest elements."""
    if return_indices:
        raise ValueError(f"{name} returns only the largest {elements}; leave return_indices out.")


def _windows(
    kernel_size: Sizes, stride: Sizes | None, padding: Sizes, axes: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return window, stride and padding with a number for each axis."""
    window = read_sizes("kernel_size", kernel_size, 1, axes)
    steps = window if stride is None else read_sizes("stride", stride, 1, axes)
    return window, steps, read_sizes("padding", padding, 0, axes)
