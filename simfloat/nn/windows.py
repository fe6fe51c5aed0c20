"""Convolution and pooling of sequences, images and volumes: each layer with its number of axes.

Sequences are images with one row. Their options are numbers instead of pairs, except in convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from simfloat.autodiff import Parameter, Tensor, stack
from simfloat.autodiff.record import Operand
from simfloat.autodiff.reductions import adaptive_average, adaptive_largest, check_divisor
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.common import check_flags, is_integer
from simfloat.nn.arguments import apply_to_batch, check_sizes, generator_of
from simfloat.nn.module import Module
from simfloat.sums.geometry import read_padding, read_row_option, read_sizes

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed

#: An option: an integer, or a number for each axis.
Sizes = int | tuple[int, ...]

#: The size of a result: an integer for all axes or a number for each axis; None keeps the size of x.
OutputSize = int | tuple[int | None, ...] | None


class WindowLayer(Module):
    """The common base of layers with windows along the last axes."""

    axes: ClassVar[int]

    def _read(self, name: str, value: Any, least: int) -> tuple[int, ...]:
        """Return an option with a number for each axis."""
        if self.axes == 1:
            return read_row_option(name, value, least, least)[1:]
        return read_sizes(name, value, least, self.axes)

    def _with_row(self, sizes: tuple[int, ...], row: int) -> tuple[int, ...]:
        """Return an option of sequences as an option of images with one row; other options are returned unchanged."""
        return (row, *sizes) if self.axes == 1 else sizes


class ConvolutionLayer(WindowLayer):
    """The common base of convolutions and transposed convolutions: options, parameters, and two rounded operations."""

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
        self.kernel_size, self.stride = self._read("kernel_size", kernel_size, 1), self._read("stride", stride, 1)
        self.dilation = self._read("dilation", dilation, 1)
        if isinstance(padding, str):
            read_padding(padding, *(self._with_row(x, 1) for x in (self.stride, self.dilation, self.kernel_size)))
        self.padding = padding if isinstance(padding, str) else self._read("padding", padding, 0)

    def _start(self, outermost: int, inner: int, bias: bool, rng: Seed) -> None:
        """Draw weight (outermost, inner, *kernel_size) and bias, uniform in +-1 / sqrt(inner * kernel elements)."""
        check_flags(bias=bias)
        generator = generator_of(rng)
        bound = 1 / math.sqrt(inner * math.prod(self.kernel_size))
        self.weight = Parameter(generator.uniform(-bound, bound, (outermost, inner, *self.kernel_size)))
        self.bias = Parameter(generator.uniform(-bound, bound, self.out_channels)) if bias else None

    def _contract(self, name: str, x: Operand, options: tuple[Any, ...]) -> Tensor:
        """Apply the method `name` of tensors with this number of axes, and add the bias."""

        def contract(batch: Tensor) -> Tensor:
            contracted = getattr(batch, f"{name}{self.axes}d")(self.weight, *options)
            return contracted if self.bias is None else contracted.add_bias(self.bias, axis=1)

        return apply_to_batch(contract, x, self.axes)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        arguments: dict[str, Any] = {"kernel_size": self.kernel_size, "stride": self.stride}
        if self.axes > 1:
            usual: dict[str, Any] = dict.fromkeys(("padding", "output_padding"), (0,) * self.axes)
            usual |= {"dilation": (1,) * self.axes, "groups": 1}
            arguments |= {name: value for name in usual if (value := getattr(self, name, usual[name])) != usual[name]}
            arguments |= {"bias": False} if self.bias is None else {}
        options = ", ".join(f"{name}={value}" for name, value in arguments.items())
        return f"{self.in_channels}, {self.out_channels}, {options}"


class Convolution(ConvolutionLayer):
    """The common base of convolutions of sequences, images and volumes."""

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

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, in_channels, *sizes) to (N, out_channels, *sizes of the result); for one example, without N."""
        return self._contract("conv", x, (self.stride, self.padding, self.dilation, self.groups))


class TransposedConvolution(ConvolutionLayer):
    """The common base of transposed convolutions of sequences, images and volumes."""

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
        self._read("padding", padding, 0)
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self.output_padding = self._read("output_padding", output_padding, 0)
        self._start(in_channels, out_channels // groups, bias, rng)

    def forward(self, x: Operand, output_size: Sequence[int] | None = None) -> Tensor:
        """Map x (N, in_channels, *sizes) to (N, out_channels, *sizes of the result); for one example, without N.

        `output_size` gives the wanted size along each axis, and replaces `output_padding`; any sizes before them are
        ignored.

        Raises:
            ValueError: if the layer cannot produce `output_size`.
        """
        x = as_tensor(x)
        more = self.output_padding if output_size is None else self._padding_for(x.shape[-self.axes :], output_size)
        return self._contract("conv_transpose", x, (self.stride, self.padding, more, self.groups, self.dilation))

    def _padding_for(self, sizes: Sequence[int], output_size: Sequence[int]) -> tuple[int, ...]:
        """Return the `output_padding` with which an x of these sizes gives results of the size `output_size`."""
        border = self._read("padding", self.padding, 0)
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
            needed = ("a length", "rows and columns", "slices, rows and columns")[self.axes - 1]
            raise ValueError(f"output_size must be {needed} from {least} to {most}, got {output_size!r}.")
        return tuple(size - n for size, n in zip(target_sizes, least, strict=True))


class PoolingLayer(WindowLayer):
    """The common base of pooling layers: the sizes of the windows, and the function of images that is applied."""

    def _read_windows(self, kernel_size: Any, stride: Any, padding: Any) -> None:
        """Store the window, its step and the padding."""
        self.kernel_size = self._read_option("kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else self._read_option("stride", stride, 1)
        self.padding = self._read_option("padding", padding, 0)

    def _read_option(self, name: str, value: Any, least: int) -> Any:
        """Return an option: a number for sequences, otherwise a tuple."""
        sizes = self._read(name, value, least)
        return sizes[0] if self.axes == 1 else sizes

    def _as_images(self, option: Any, row: int) -> Any:
        """Return an option of sequences as an option of images with one row; other options are returned unchanged."""
        return (row, option) if self.axes == 1 else option

    def _pool(self, pool: Callable[[Tensor], Tensor], x: Operand) -> Tensor:
        """Apply a function of images or volumes; sequences are images with one row."""
        if self.axes == 1:
            return apply_to_batch(lambda batch: pool(batch.unsqueeze(2)).squeeze(2), x, 1)
        return apply_to_batch(pool, x, self.axes)

    def extra_repr(self) -> str:
        """Return the sizes of the windows as text."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPooling(PoolingLayer):
    """The common base of max pooling of sequences, images and volumes."""

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
        check_no_indices(f"MaxPool{self.axes}d", "elements" if self.axes == 1 else "pixels", return_indices)
        self._read_windows(kernel_size, stride, padding)
        self.dilation, self.ceil_mode = self._read_option("dilation", dilation, 1), bool(ceil_mode)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, *sizes) to (N, C, *numbers of windows); for one example, without N."""
        window, steps = self._as_images(self.kernel_size, 1), self._as_images(self.stride, 1)
        options = (window, steps, self._as_images(self.padding, 0), self._as_images(self.dilation, 1), self.ceil_mode)
        return self._pool(lambda batch: getattr(batch, f"max_pool{max(self.axes, 2)}d")(*options), x)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        ceil_mode = f", ceil_mode={self.ceil_mode}" if self.axes > 1 else ""
        return f"{super().extra_repr()}, dilation={self.dilation}{ceil_mode}"


class AveragePooling(PoolingLayer):
    """The common base of average pooling of sequences, images and volumes."""

    divisor_override: int | None = None

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
        self._read_windows(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = bool(ceil_mode), bool(count_include_pad)
        if self.axes > 1:
            self.divisor_override = divisor_override

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, *sizes) to (N, C, *numbers of windows); for one example, without N."""
        sizes = (
            self._as_images(self.kernel_size, 1),
            self._as_images(self.stride, 1),
            self._as_images(self.padding, 0),
        )
        options = (*sizes, self.ceil_mode, self.count_include_pad, self.divisor_override)
        return self._pool(lambda batch: getattr(batch, f"avg_pool{max(self.axes, 2)}d")(*options), x)


class AdaptivePooling(PoolingLayer):
    """The common base of adaptive pooling of sequences, images and volumes."""

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size,) * self.axes
        is_free = self.axes > 1  # None keeps a size
        if len(sizes) != self.axes or not all(is_integer(size, 1) or (is_free and size is None) for size in sizes):
            must = (
                "must be a positive integer",
                "is a positive integer, None, or a pair of them",
                "is a positive integer, None, or a triple of them",
            )[self.axes - 1]
            raise ValueError(f"output_size {must}, got {output_size!r}.")
        self.output_size: Any = tuple(sizes) if is_free else sizes[0]

    def extra_repr(self) -> str:
        """Return the size of the result as text."""
        return f"output_size={self.output_size}"


class AdaptiveAveraging(AdaptivePooling):
    """The common base of adaptive average pooling of sequences, images and volumes."""

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, *sizes) to (N, C, *output_size); for one example, without N."""
        return self._pool(lambda batch: adaptive_averages(batch, self._as_images(self.output_size, 1)), x)


class AdaptiveMaximum(AdaptivePooling):
    """The common base of adaptive max pooling of sequences, images and volumes."""

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        elements = "pixels" if self.axes == 2 else "elements"
        check_no_indices(f"AdaptiveMaxPool{self.axes}d", elements, return_indices)
        super().__init__(output_size)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, *sizes) to (N, C, *output_size); for one example, without N."""
        return self._pool(lambda batch: adaptive_maxima(batch, self._as_images(self.output_size, 1)), x)


def adaptive_averages(x: Tensor, output_size: Sequence[int | None]) -> Tensor:
    """Return averages over windows, with the window sizes chosen so that the result has the size `output_size`."""
    counts = adaptive_counts("AdaptiveAvgPool", x, output_size)
    if len(counts) == 3:
        is_mean = tuple(output_size) == (1, 1, 1)
        return x.mean((2, 3, 4), keepdims=True) if is_mean else tensor_of(adaptive_average(x, counts))
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
