"""Convolution and pooling layers for images."""

from __future__ import annotations

from simfloat.nn import windows


class Conv2d(windows.Convolution):
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

    axes = 2


class ConvTranspose2d(windows.TransposedConvolution):
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
            is not "zeros"; when called, if output_padding is neither below the stride nor below the dilation.

    Examples:
        >>> layer = sf.nn.ConvTranspose2d(4, 1, kernel_size=2, stride=2, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 1, 16, 16)
    """

    axes = 2


class MaxPool2d(windows.MaxPooling):
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

    axes = 2


class AvgPool2d(windows.AveragePooling):
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

    axes = 2


class AdaptiveAvgPool2d(windows.AdaptiveAveraging):
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

    axes = 2


class AdaptiveMaxPool2d(windows.AdaptiveMaximum):
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

    axes = 2
