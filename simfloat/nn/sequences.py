"""Convolution and pooling layers for sequences, computed as images with one row."""

from __future__ import annotations

from simfloat.nn import windows

#: An integer or a tuple of one integer, as in PyTorch's options for sequences.
Size = int | tuple[int]


class Conv1d(windows.Convolution):
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

    axes = 1


class ConvTranspose1d(windows.TransposedConvolution):
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
            is not "zeros"; when called, if output_padding is neither below the stride nor below the dilation.

    Examples:
        >>> layer = sf.nn.ConvTranspose1d(4, 1, kernel_size=2, stride=2, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((5, 4, 8)))
        >>> y.shape
        (5, 1, 16)
    """

    axes = 1


class MaxPool1d(windows.MaxPooling):
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

    axes = 1


class AvgPool1d(windows.AveragePooling):
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

    axes = 1

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)


class AdaptiveAvgPool1d(windows.AdaptiveAveraging):
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

    axes = 1

    def __init__(self, output_size: Size) -> None:
        super().__init__(output_size)


class AdaptiveMaxPool1d(windows.AdaptiveMaximum):
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

    axes = 1

    def __init__(self, output_size: Size, return_indices: bool = False) -> None:
        super().__init__(output_size, return_indices)
