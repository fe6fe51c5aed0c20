"""Where the kernels of a convolution lie on an image."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from simfloat.arithmetic.machines import device_of
from simfloat.arithmetic.operands import FloatType
from simfloat.checks import is_integer

Pair = tuple[int, int]


class Geometry(NamedTuple):
    """The sizes of a convolution; every pair is (rows, columns).

    Images are spread, zeros between their pixels, and get zeros around them; kernels meet what that gives.
    """

    window: Pair  # of a kernel
    stride: Pair
    before: Pair  # rows above and columns left of an image; what is negative is cut off
    after: Pair  # rows below and columns right of it
    dilation: Pair
    groups: int
    result: Pair
    spacing: Pair = (1, 1)  # steps from a pixel to the next
    is_transposed: bool = False  # whether images are results, or gradients of results, of a convolution

    @property
    def slices(self) -> Geometry:
        """The geometry on the images that kernels meet, as `Volumes` have one: this one."""
        return self

    @property
    def planes(self) -> int:
        """How many images a kernel meets in one of the operand: itself."""
        return 1

    @property
    def layers(self) -> int:
        """How many channels a kernel meets for one of the operand: itself."""
        return 1

    def images_for_kernels(self, x: NDArray) -> NDArray:
        """The images that kernels meet: these."""
        return x

    @property
    def pixels(self) -> int:
        """How many pixels a channel of the result has."""
        return self.result[0] * self.result[1]

    def covers_images(self, size: Pair) -> bool:
        """Whether the windows cover images of this size, each pixel once."""
        covered = self.result[0] * self.window[0], self.result[1] * self.window[1]
        return self.stride == self.window and self.dilation == (1, 1) and self.before == (0, 0) and covered == size

    def pad_images(self, x: NDArray, dtype: FloatType, border: float = 0.0) -> NDArray:
        """The images, spread and with zeros around them, or another number, in an array of this type."""
        if self.before == self.after == (0, 0) and self.spacing == (1, 1) and x.dtype == dtype:
            return x
        sizes, inside, remaining = [], [], []
        for size, step, first, last in zip(x.shape[2:], self.spacing, self.before, self.after, strict=True):
            total = first + (size - 1) * step + 1 + last
            cut = -(min(first, 0) // step)  # pixels that lie before the first place
            start = first + cut * step
            count = max(min(size - cut, len(range(start, total, step))), 0)
            sizes.append(total)
            inside.append(slice(start, start + count * step, step))
            remaining.append(slice(cut, cut + count))
        shape = (*x.shape[:2], *sizes)
        out = device_of(x).new_array("zeros", shape, dtype)
        if border:
            out[...] = border
        out[:, :, inside[0], inside[1]] = x[:, :, remaining[0], remaining[1]]
        return out

    def windows(self, x: NDArray) -> NDArray:
        """A view (image, channel, kernel row, kernel column, row, column) of padded images: what each place meets."""
        # Strides alone make the windows: a pixel that several kernels' places meet lies in memory once.
        image, channel, row, column = x.strides
        return device_of(x).arrays.lib.stride_tricks.as_strided(
            x,
            (*x.shape[:2], *self.window, *self.result),
            (
                image,
                channel,
                row * self.dilation[0],
                column * self.dilation[1],
                row * self.stride[0],
                column * self.stride[1],
            ),
        )

    def for_image_gradient(self, size: Pair) -> Geometry:
        """That of the convolution that takes gradients of results to those of images of this size.

        Its kernels are those of `mirrored_kernels`. Results are spread by the stride; what their kernels did not reach of an
        image, at its end, gets zeros.
        """
        # A pixel is met by every window that begins up to `reach` before it, so the spread
        # results get a border of that width, less the border that the image itself had.
        reach = [gap * (places - 1) for gap, places in zip(self.dilation, self.window, strict=True)]
        before = [r - first for r, first in zip(reach, self.before, strict=True)]
        spread = [(places - 1) * step + 1 for places, step in zip(self.result, self.stride, strict=True)]
        after = [n + r - first - s for n, r, first, s in zip(size, reach, before, spread, strict=True)]
        return self._replace(
            stride=(1, 1),
            before=(before[0], before[1]),
            after=(after[0], after[1]),
            result=size,
            spacing=self.stride,
            is_transposed=True,
        )


def mirrored_kernels(w: NDArray, groups: int) -> NDArray:
    """Kernels (O, C / groups, h, w) as those (C, O / groups, h, w) of the transposed convolution, mirrored."""
    outputs, channels, *window = w.shape
    parts = w.reshape(groups, outputs // groups, channels, *window).swapaxes(1, 2)
    return parts.reshape(groups * channels, outputs // groups, *window)[:, :, ::-1, ::-1]


def geometry_of(x: NDArray, w: NDArray, stride: Any, padding: Any, dilation: Any, groups: Any) -> Geometry:
    """The geometry that users ask for, for images and kernels of these shapes; ValueError for what does not fit."""
    if x.ndim != 4 or w.ndim != 4:
        raise ValueError(
            f"conv2d needs x (N, C, H, W) and w (O, C / groups, h, w), got shapes {x.shape} and {w.shape}."
        )
    if not is_integer(groups, 1):
        raise ValueError(f"groups must be a positive integer, got {groups!r}.")
    if x.shape[1] != w.shape[1] * groups or len(w) % groups:
        raise ValueError(
            f"conv2d needs x (N, C, H, W) and w (O, C / groups, h, w) with C and O multiples of groups, got shapes "
            f"{x.shape} and {w.shape} with groups={groups}."
        )
    steps, gaps, window = read_pair("stride", stride, 1), read_pair("dilation", dilation, 1), (w.shape[2], w.shape[3])
    before, after = read_padding(padding, steps, gaps, window)
    padded = [sum(sizes) for sizes in zip(before, x.shape[2:], after, strict=True)]
    spans = [gap * (places - 1) + 1 for gap, places in zip(gaps, window, strict=True)]
    if 0 in window or spans[0] > padded[0] or spans[1] > padded[1]:
        raise ValueError(
            f"Kernels need at least one place and room in the padded image: w of shape {w.shape} with dilation {gaps} "
            f"spans {spans[0]} x {spans[1]}, x of shape {x.shape} with padding {padding} has {padded[0]} x {padded[1]}."
        )
    rows, columns = ((size - span) // step + 1 for size, span, step in zip(padded, spans, steps, strict=True))
    return Geometry(window, steps, before, after, gaps, int(groups), (rows, columns))


def read_padding(padding: Any, steps: Pair, gaps: Pair, window: Pair) -> tuple[Pair, Pair]:
    """(rows above, columns left) and (rows below, columns right) of an image.

    As in torch.nn.Conv2d, "same" gives results as large as images; of an odd number the one more lies at the end.
    """
    if not isinstance(padding, str):
        pair = read_pair("padding", padding, 0)
        return pair, pair
    if padding not in ("same", "valid") or (padding == "same" and steps != (1, 1)):
        raise ValueError(
            f"padding is an integer, a pair of them, 'valid' or, with a stride of 1, 'same'; got {padding!r} with "
            f"stride {steps}."
        )
    down, right = (gap * (places - 1) if padding == "same" else 0 for gap, places in zip(gaps, window, strict=True))
    return (down // 2, right // 2), (down - down // 2, right - right // 2)


def as_images(x: NDArray) -> NDArray:
    """Sequences (N, C, L), and their kernels, as images of one row; images as they are."""
    return x[:, :, None] if x.ndim == 3 else x


def read_row_option(name: str, value: Any, least: int, row: int) -> Pair:
    """An option of sequences, one integer, as that of images of one row, for whose rows it is `row`."""
    number = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value
    if not is_integer(number, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
    return row, int(number)


def read_pair(name: str, value: Any, least: int) -> Pair:
    """(rows, columns) of an option, which may be one integer for both."""
    pair = (value, value) if is_integer(value, least) else value
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(is_integer(number, least) for number in pair):
        return int(pair[0]), int(pair[1])
    raise ValueError(
        f"{name} must be an integer of at least {least}, or a pair (rows, columns) of them; got {value!r}."
    )
