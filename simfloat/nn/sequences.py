"""Convolution and pooling layers for sequences, computed as images with one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.common import check_flags, is_integer
from simfloat.nn.arguments import apply_to_batch
from simfloat.nn.convolution import ConvolutionLayer, adaptive_averages, adaptive_maxima, check_no_indices
from simfloat.nn.module import Module
from simfloat.sums.geometry import read_padding, read_row_option

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed

#: An integer or a tuple of one integer, as in PyTorch's options for sequences.
Size = int | tuple[int]


class _ConvolutionOfSequences(ConvolutionLayer):
    """The common base of convolutions and transposed convolutions of sequences."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size, padding: Size | str,
        dilation: Size, groups: int, padding_mode: str,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, groups, padding_mode)
        steps, gaps = read_row_option("stride", stride, 1, 1), read_row_option("dilation", dilation, 1, 1)
        window = read_row_option("kernel_size", kernel_size, 1, 1)
        border = padding if isinstance(padding, str) else read_row_option("padding", padding, 0, 0)
        read_padding(border, steps, gaps, window)
        self.kernel_size, self.stride, self.dilation = window[1:], steps[1:], gaps[1:]
        self.padding = border if isinstance(border, str) else border[1:]

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class Conv1d(_ConvolutionOfSequences):
    """Convolution of sequences plus bias; the contraction and the addition are each rounded.

    weight is (out_channels, in_channels / groups, k) and bias is (out_channels). Both start uniform in +-1 /
    sqrt(in_channels / groups * k), as in torch.nn. In policies the operation is called `conv2d`, because the sequences
    are computed as images with one row.

    Parameters:
        in_channels: the number of channels of x (N, in_channels, L).
        out_channels: the number of channels of the result.
        kernel_size: the length k of the kernel.
        stride: the step between windows.
        padding: the number of zeros at each end, or "same" or "valid".
        dilation: the step between kernel elements.
        groups: the number of groups of channels, which are convolved separately.
        bias: False for a layer without bias.
        padding_mode: must be "zeros".
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if the channels are not multiples of `groups`; if padding_mode
            is not "zeros".

    Examples:
        >>> layer = sf.nn.Conv1d(2, 4, kernel_size=3, padding=1, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((5, 2, 8)))
        >>> y.shape
        (5, 4, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        rng: Seed = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self._start(out_channels, in_channels // groups, bias, rng)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, in_channels, L) to (N, out_channels, length of the result); for one sequence, without N."""
        border = self.padding if isinstance(self.padding, str) else self.padding[0]
        options = (self.stride[0], border, self.dilation[0], self.groups)
        return apply_to_batch(lambda sequences: self._with_bias(sequences.conv1d(self.weight, *options)), x, 1)


class ConvTranspose1d(_ConvolutionOfSequences):
    """Transposed convolution of sequences plus bias; the contraction and the addition are each rounded.

    The contraction is the gradient of Conv1d with respect to its sequences. weight is (in_channels, out_channels /
    groups, k) and bias is (out_channels). Both start uniform in +-1 / sqrt(out_channels / groups * k), as in torch.nn.
    The result has (L - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1 elements. In policies the
    operation is called `conv_transpose2d`.

    Parameters:
        in_channels: the number of channels of x (N, in_channels, L).
        out_channels: the number of channels of the result.
        kernel_size: the length k of the kernel.
        stride: the step between the elements of x in the result.
        padding: the number of elements that are removed at each end of the result.
        output_padding: the number of elements that are added at the end.
        groups: the number of groups of channels, which are convolved separately.
        bias: False for a layer without bias.
        dilation: the step between kernel elements.
        padding_mode: must be "zeros".
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if the channels are not multiples of `groups`; if padding_mode
            is not "zeros"; when called, if output_padding is smaller than neither the stride nor the dilation.

    Examples:
        >>> layer = sf.nn.ConvTranspose1d(4, 1, kernel_size=2, stride=2, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((5, 4, 8)))
        >>> y.shape
        (5, 1, 16)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        *,
        rng: Seed = None,
    ) -> None:
        border = read_row_option("padding", padding, 0, 0)[1]
        super().__init__(in_channels, out_channels, kernel_size, stride, border, dilation, groups, padding_mode)
        self.border, self.output_padding = border, read_row_option("output_padding", output_padding, 0, 0)[1:]
        self._start(in_channels, out_channels // groups, bias, rng)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, in_channels, L) to (N, out_channels, length of the result); for one sequence, without N."""
        options = (self.stride[0], self.border, self.output_padding[0], self.groups, self.dilation[0])
        return apply_to_batch(
            lambda sequences: self._with_bias(sequences.conv_transpose1d(self.weight, *options)), x, 1
        )


def _in_one_row(function: Callable[[Tensor], Tensor], x: Operand) -> Tensor:
    """Apply a function of images to sequences, or to one sequence, as images with one row."""
    return apply_to_batch(lambda sequences: function(sequences.unsqueeze(2)).squeeze(2), x, 1)


class MaxPool1d(Module):
    """The largest element of every window of sequences (N, C, L); the gradient goes to the first of the largest.

    If windows overlap, their gradients are added through the policy's `reduce`.

    Parameters:
        kernel_size: the length of the window.
        stride: the step between windows; by default kernel_size.
        padding: the number of elements added at each end; they are never the largest.
        dilation: the step between the elements of a window.
        return_indices: must be False.
        ceil_mode: True if the number of windows is rounded up instead of down.

    Raises:
        ValueError: if return_indices is true; when called, if x has another shape or the window does not fit.

    Examples:
        >>> layer = sf.nn.MaxPool1d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 4.0, 3.0]])
        >>> y.data
        array([[2., 4.]], dtype=float32)
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        check_flags(ceil_mode=ceil_mode)
        check_no_indices("MaxPool1d", "elements", return_indices)
        self.kernel_size, self.stride, self.padding = _windows(kernel_size, stride, padding)
        self.dilation, self.ceil_mode = read_row_option("dilation", dilation, 1, 1)[1], bool(ceil_mode)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, L) to (N, C, number of windows); for one sequence, without N."""
        sizes = ((1, self.kernel_size), (1, self.stride), (0, self.padding), (1, self.dilation))
        return _in_one_row(lambda images: images.max_pool2d(*sizes, self.ceil_mode), x)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}"


class AvgPool1d(Module):
    """The sum of every window of sequences (N, C, L) through the policy's `reduce`, divided by its length.

    Parameters:
        kernel_size: the length of the window.
        stride: the step between windows; by default kernel_size.
        padding: the number of zeros added at each end.
        ceil_mode: True if the number of windows is rounded up instead of down.
        count_include_pad: False if elements of the padding do not count in the divisor.

    Raises:
        ValueError: if a size is invalid; when called, if x has another shape or the window does not fit.

    Examples:
        >>> layer = sf.nn.AvgPool1d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 4.0, 3.0]])
        >>> y.data
        array([[1.5, 3.5]], dtype=float32)
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        check_flags(ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        self.kernel_size, self.stride, self.padding = _windows(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = bool(ceil_mode), bool(count_include_pad)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, L) to (N, C, number of windows); for one sequence, without N."""
        sizes = ((1, self.kernel_size), (1, self.stride), (0, self.padding))
        return _in_one_row(lambda images: images.avg_pool2d(*sizes, self.ceil_mode, self.count_include_pad), x)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool1d(Module):
    """Averages of `output_size` windows of sequences (N, C, L).

    The windows are those of AdaptiveAvgPool2d for images with one row.

    Parameters:
        output_size: the number of windows, a positive integer.

    Raises:
        ValueError: if output_size is not a positive integer.

    Examples:
        >>> layer = sf.nn.AdaptiveAvgPool1d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 4.0, 3.0]])
        >>> y.data
        array([[1.5, 3.5]], dtype=float32)
    """

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = _read_output_size(output_size)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, L) to (N, C, output_size); for one sequence, without N."""
        return _in_one_row(lambda images: adaptive_averages(images, (1, self.output_size)), x)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(Module):
    """The largest elements of `output_size` windows of sequences (N, C, L).

    The windows are those of AdaptiveAvgPool1d. The gradient goes to the first of the largest elements.

    Parameters:
        output_size: the number of windows, a positive integer.
        return_indices: must be False.

    Raises:
        ValueError: if output_size is not a positive integer; if return_indices is true.

    Examples:
        >>> layer = sf.nn.AdaptiveMaxPool1d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([[1.0, 2.0, 4.0, 3.0]])
        >>> y.data
        array([[2., 4.]], dtype=float32)
    """

    def __init__(self, output_size: Size, return_indices: bool = False) -> None:
        super().__init__()
        check_no_indices("AdaptiveMaxPool1d", "elements", return_indices)
        self.output_size = _read_output_size(output_size)

    def forward(self, x: Operand) -> Tensor:
        """Map x (N, C, L) to (N, C, output_size); for one sequence, without N."""
        return _in_one_row(lambda images: adaptive_maxima(images, (1, self.output_size)), x)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text."""
        return f"output_size={self.output_size}"


def _read_output_size(output_size: Size) -> int:
    """Return the number of adaptive windows."""
    size = output_size[0] if isinstance(output_size, tuple | list) and len(output_size) == 1 else output_size
    if not is_integer(size, 1):
        raise ValueError(f"output_size must be a positive integer, got {output_size!r}.")
    return int(size)


def _windows(kernel_size: Size, stride: Size | None, padding: Size) -> tuple[int, int, int]:
    """Return window, stride and padding as integers."""
    window = read_row_option("kernel_size", kernel_size, 1, 1)[1]
    return (
        window,
        window if stride is None else read_row_option("stride", stride, 1, 1)[1],
        read_row_option("padding", padding, 0, 0)[1],
    )
