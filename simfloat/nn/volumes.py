"""Convolution and pooling layers for volumes."""

from __future__ import annotations

from simfloat.nn import windows


class Conv3d(windows.Convolution):
    """Convolution of volumes plus bias; the contraction and the addition are each rounded.

    Each sum runs over (input channel, kernel slice, kernel row, kernel column). weight is (out_channels, in_channels /
    groups, d, h, w) and bias is (out_channels). Both start uniform in +-1 / sqrt(in_channels / groups * d * h * w), as
    in torch.nn. In policies the operation is called `conv2d`.

    Parameters:
        in_channels: the number of channels of x (N, in_channels, D, H, W).
        out_channels: the number of channels of the result.
        kernel_size: the depth, height and width of the kernel, an integer or a triple.
        stride: the step between windows, an integer or a triple.
        padding: the number of zeros on each side along each axis, or "same" or "valid".
        dilation: the step between kernel elements, an integer or a triple.
        groups: the number of groups of channels, which are convolved separately.
        bias: False for a layer without bias.
        padding_mode: must be "zeros".
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if the channels are not multiples of `groups`; if padding_mode
            is not "zeros".

    Examples:
        >>> layer = sf.nn.Conv3d(1, 4, kernel_size=3, padding=1, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 1, 4, 5, 6)))
        >>> y.shape
        (2, 4, 4, 5, 6)
    """

    axes = 3


class ConvTranspose3d(windows.TransposedConvolution):
    """Transposed convolution of volumes plus bias; the contraction and the addition are each rounded.

    The contraction is the gradient of Conv3d with respect to its volumes. weight is (in_channels, out_channels /
    groups, d, h, w) and bias is (out_channels). Both start uniform in +-1 / sqrt(out_channels / groups * d * h * w), as
    in torch.nn. The result has (D - 1) * stride - 2 * padding + dilation * (d - 1) + output_padding + 1 slices. In
    policies the operation is called `conv_transpose2d`.

    Parameters:
        in_channels: the number of channels of x (N, in_channels, D, H, W).
        out_channels: the number of channels of the result.
        kernel_size: the depth, height and width of the kernel, an integer or a triple.
        stride: the step between the elements of x in the result, an integer or a triple.
        padding: the number of elements that are removed on each side of the result along each axis.
        output_padding: the number of slices, rows and columns that are added at the end, an integer or a triple.
        groups: the number of groups of channels, which are convolved separately.
        bias: False for a layer without bias.
        dilation: the step between kernel elements, an integer or a triple.
        padding_mode: must be "zeros".
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if the channels are not multiples of `groups`; if padding_mode
            is not "zeros"; when called, if output_padding is neither below the stride nor below the dilation.

    Examples:
        >>> layer = sf.nn.ConvTranspose3d(4, 1, kernel_size=2, stride=2, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 3, 4, 5)))
        >>> y.shape
        (2, 1, 6, 8, 10)
    """

    axes = 3


class MaxPool3d(windows.MaxPooling):
    """The largest element of every window of volumes; the gradient goes to the first of the largest elements.

    If windows overlap, their gradients are added through the `reduce` of the policy, in row-major order of the windows.
    In policies the operation is called `max_pool2d`.

    Parameters:
        kernel_size: the depth, height and width of the window, an integer or a triple.
        stride: the step between windows, an integer or a triple; by default kernel_size.
        padding: the number of elements added on each side along each axis; they are never the largest.
        dilation: the step between the elements of a window, an integer or a triple.
        return_indices: must be False.
        ceil_mode: True if the number of windows is rounded up instead of down.

    Raises:
        ValueError: if return_indices is true; when called, if x has another shape or the window does not fit.

    Examples:
        >>> layer = sf.nn.MaxPool3d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 4, 8, 8)))
        >>> y.shape
        (2, 4, 2, 4, 4)
    """

    axes = 3


class AvgPool3d(windows.AveragePooling):
    """The sum of every window of volumes through the `reduce` of the policy, divided by the number of its elements.

    In policies the operation is called `avg_pool2d`.

    Parameters:
        kernel_size: the depth, height and width of the window, an integer or a triple.
        stride: the step between windows, an integer or a triple; by default kernel_size.
        padding: the number of zeros added on each side along each axis.
        ceil_mode: True if the number of windows is rounded up instead of down.
        count_include_pad: False if elements of the padding do not count in the divisor.
        divisor_override: a positive integer that replaces the number of elements as the divisor.

    Raises:
        ValueError: if divisor_override is not a positive integer; when called, if x has another shape or the window
            does not fit.

    Examples:
        >>> layer = sf.nn.AvgPool3d(2)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 4, 8, 8)))
        >>> y.shape
        (2, 4, 2, 4, 4)
    """

    axes = 3


class AdaptiveAvgPool3d(windows.AdaptiveAveraging):
    """Averages of windows of volumes, with the window sizes chosen so that the result has the size `output_size`.

    The windows are those of torch.nn, described at AdaptiveAvgPool2d. Each average is a sum through the `reduce` of
    the policy, divided by the number of its elements. Gradients of an element of several windows are added through
    `reduce`. In policies the operation is called `avg_pool2d`. If `output_size` is 1, it is the operation `mean`, as in
    PyTorch.

    Parameters:
        output_size: an integer or a triple (slices, rows, columns); 1 gives one average per channel. None keeps the
            size of x.

    Raises:
        ValueError: if a size is neither a positive integer nor None; when called, if x is not a volume.

    Examples:
        >>> layer = sf.nn.AdaptiveAvgPool3d((1, 2, 3))
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 4, 8, 8)))
        >>> y.shape
        (2, 4, 1, 2, 3)
    """

    axes = 3


class AdaptiveMaxPool3d(windows.AdaptiveMaximum):
    """The largest elements of windows of volumes, with window sizes chosen so that the result has `output_size`.

    The windows are those of AdaptiveAvgPool2d. The gradient goes to the first of the largest elements; an element of
    several windows gets their gradients, added through the `reduce` of the policy. In policies the operation is called
    `max_pool2d`.

    Parameters:
        output_size: an integer or a triple (slices, rows, columns). None keeps the size of x.
        return_indices: must be False.

    Raises:
        ValueError: if a size is neither a positive integer nor None; if return_indices is true; when called, if x is
            not a volume.

    Examples:
        >>> layer = sf.nn.AdaptiveMaxPool3d((1, 2, 3))
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 4, 8, 8)))
        >>> y.shape
        (2, 4, 1, 2, 3)
    """

    axes = 3
