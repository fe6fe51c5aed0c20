"""Pooling layers."""

from __future__ import annotations

from simfloat.accumulate.geometry import Pair, read_pair
from simfloat.autodiff import Tensor, stack
from simfloat.autodiff.pool2d import check_divisor
from simfloat.autodiff.record import Operand
from simfloat.checks import check_flags, is_integer
from simfloat.nn.layer_arguments import apply_to_images
from simfloat.nn.module import Module


class MaxPool2d(Module):
    """The largest pixel of every window; its gradient goes to the first one that is as large.

    Options are torch.nn's; `stride` is by default the window itself. Where windows overlap, gradients are added through
    the policy's `reduce`, windows in row-major order.

    Raises ValueError for `return_indices`, and when it is called, for shapes that do not fit.

    Examples:
        >>> layer = sf.nn.MaxPool2d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 4, 4)
    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        check_flags(ceil_mode=ceil_mode)
        if return_indices:
            raise ValueError("MaxPool2d returns the largest pixels alone; leave return_indices out.")
        self.kernel_size, self.stride, self.padding = _windows(kernel_size, stride, padding)
        self.dilation, self.ceil_mode = read_pair("dilation", dilation, 1), bool(ceil_mode)

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, H, W) -> (N, C, rows, columns); the same without N for one image."""
        options = (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)
        return apply_to_images(lambda images: images.max_pool2d(*options), x)

    def extra_repr(self) -> str:
        """The arguments that made it."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """The sum of every window through the policy's `reduce`, divided by the number of its pixels.

    Options are torch.nn's; `stride` is by default the window itself. Places in the padding count as pixels unless
    `count_include_pad` is False. Raises ValueError for a `divisor_override` that is no positive integer, and when it is
    called, for what does not fit.

    Examples:
        >>> layer = sf.nn.AvgPool2d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 4, 4)
    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        check_flags(ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        check_divisor(divisor_override)
        self.kernel_size, self.stride, self.padding = _windows(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = bool(ceil_mode), bool(count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, H, W) -> (N, C, rows, columns); the same without N for one image."""
        options = (
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override,
        )  # fmt: skip
        return apply_to_images(lambda images: images.avg_pool2d(*options), x)

    def extra_repr(self) -> str:
        """The arguments that made it."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Averages of windows, as many as `output_size` says: 1 for one average of each channel.

    output_size is an integer or a pair (rows, columns); None keeps the images' own. Windows are those of torch.nn: of
    n along a side of s pixels, number i begins at floor(i * s / n) and ends before ceil((i + 1) * s / n). Where all are
    equal and none overlap it is AvgPool2d; else each average is a mean of its own.

    Raises ValueError for what is no size, and when it is called, for what is no image.

    Examples:
        >>> layer = sf.nn.AdaptiveAvgPool2d(1)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 4, 1, 1)
    """

    def __init__(self, output_size: int | tuple[int | None, int | None] | None) -> None:
        super().__init__()
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
        if len(sizes) != 2 or not all(size is None or is_integer(size, 1) for size in sizes):
            raise ValueError(f"output_size is a positive integer, None, or a pair of them, got {output_size!r}.")
        self.output_size = sizes[0], sizes[1]

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, H, W) -> (N, C, rows, columns); the same without N for one image."""
        return apply_to_images(lambda images: adaptive_averages(images, self.output_size), x)

    def extra_repr(self) -> str:
        """The argument that made it."""
        return f"output_size={self.output_size}"


def adaptive_averages(x: Tensor, output_size: tuple[int | None, int | None]) -> Tensor:
    """As many averages of images (N, C, H, W) as asked for, None for as many as there are pixels."""
    if x.ndim != 4:
        raise ValueError(f"AdaptiveAvgPool2d needs images (N, C, H, W), got shape {x.shape}.")
    sizes = x.shape[2:]
    counts = [size if asked_size is None else asked_size for asked_size, size in zip(output_size, sizes, strict=True)]
    if not any(size % n for size, n in zip(sizes, counts, strict=True)):
        return x.avg_pool2d((sizes[0] // counts[0], sizes[1] // counts[1]))
    rows, columns = (
        [slice(i * size // n, -(-(i + 1) * size // n)) for i in range(n)] for size, n in zip(sizes, counts, strict=True)
    )
    averages = [x[:, :, row, column].mean((2, 3)) for row in rows for column in columns]
    return stack(averages, 2).reshape(*x.shape[:2], *counts)


def _windows(kernel_size: int | Pair, stride: int | Pair | None, padding: int | Pair) -> tuple[Pair, Pair, Pair]:
    """Window, stride and padding as pairs."""
    window = read_pair("kernel_size", kernel_size, 1)
    return window, window if stride is None else read_pair("stride", stride, 1), read_pair("padding", padding, 0)
