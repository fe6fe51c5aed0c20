"""NVFP4's recipe for pretraining as a PyTorch program for a Blackwell GPU.

Sources: Pretraining Large Language Models with NVFP4, arXiv 2509.25149; TransformerEngine, NVFP4BlockScaling; PyTorch,
torch.nn.functional.scaled_mm; cuBLAS, layout of the scales of blocks.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

E4M3 = torch.float8_e4m3fn

#: The magnitudes of E2M1, by their codes.
LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])

#: Of both operands of a product: scales of 16 numbers along k, and one of all; and how they are laid out.
KINDS = [F.ScalingType.BlockWise1x16, F.ScalingType.TensorWise]
LAYOUTS = [F.SwizzleType.SWIZZLE_32_4_4, F.SwizzleType.NO_SWIZZLE]


class Quantized(NamedTuple):
    """Numbers as element * scale of the block / scale of all."""

    codes: torch.Tensor  # of E2M1, one to a byte
    scales: torch.Tensor  # in E4M3, of runs of 16 in every row, or of squares
    whole: torch.Tensor

    def rows(self):
        """The same, with the scales of squares in each of their 16 rows."""
        return self._replace(scales=by_row(self.scales, len(self.codes)))

    def columns(self):
        """The transposed matrix of numbers in squares, which is quantized as the matrix is."""
        return Quantized(self.codes.t(), self.scales.t(), self.whole).rows()


def by_row(scales, rows):
    return scales.repeat_interleave(rows // len(scales), 0)


def nearest(magnitudes):
    """The codes of the nearest magnitudes, of two equally near ones the even code."""
    middles = (LEVELS[1:] + LEVELS[:-1]) / 2
    above, below = (torch.bucketize(magnitudes, middles, right=right) for right in (True, False))
    return torch.where(below % 2 == 0, below, above)


def drawn(magnitudes, draws):
    """The codes of the magnitudes below or above, of the latter with the share of the way to it that is gone."""
    below = (torch.bucketize(magnitudes, LEVELS, right=True) - 1).clamp(max=6)
    share = (magnitudes - LEVELS[below]) / (LEVELS[below + 1] - LEVELS[below])
    return below + (draws < share)


def quantized(x, squares=False, draw=None):
    """Rows in runs of 16, or squares of 16 by 16; to nearest even, or stochastically by numbers from 0 below 1."""
    amax = x.abs().max()
    tensor_scale = torch.where(amax > 0, torch.tensor(448.0 * 6.0) / amax, torch.tensor(1.0))
    blocks = x.unflatten(-1, (-1, 16))
    largest = blocks.abs().amax(-1)
    if squares:
        largest = largest.unflatten(0, (-1, 16)).amax(1)
    scales = (largest * (tensor_scale / 6.0)).clamp(max=448.0).to(E4M3)
    factors = (1.0 / (by_row(scales.float(), len(x)) * (1.0 / tensor_scale))).clamp(max=torch.finfo(x.dtype).max)
    ratios = (blocks * factors.unsqueeze(-1)).clamp(-6.0, 6.0).flatten(-2)
    codes = nearest(ratios.abs()) if draw is None else drawn(ratios.abs(), draw(ratios.shape))
    return Quantized(codes.to(torch.uint8) | torch.signbit(ratios).to(torch.uint8) << 3, scales, tensor_scale)


def packed(codes):
    """Two numbers to a byte, the first one in its lower half."""
    return (codes[:, ::2] | codes[:, 1::2] << 4).contiguous().view(torch.float4_e2m1fn_x2)


def swizzled(scales):
    """Tiles of 128 rows by 4 blocks, filled up with zeros; in a tile rows 32 apart are next to each other."""
    rows, blocks = scales.shape
    filled = torch.zeros(rows + -rows % 128, blocks + -blocks % 4, dtype=torch.uint8)
    filled[:rows, :blocks] = scales.view(torch.uint8)
    tiles = filled.unflatten(0, (-1, 4, 32)).unflatten(-1, (-1, 4))
    return tiles.permute(0, 3, 2, 1, 4).flatten().view(E4M3)


def product(a, b, dtype=torch.bfloat16):
    """a (m, k) times the transpose of b (n, k)."""
    a_scales, b_scales = ([swizzled(each.scales), 1.0 / each.whole] for each in (a, b))
    return F.scaled_mm(
        packed(a.codes), packed(b.codes).t(), a_scales, KINDS, b_scales, KINDS, LAYOUTS, LAYOUTS, output_dtype=dtype
    )  # fmt: skip


def rotation(signs):
    """A random Hadamard matrix, by the signs of its 16 rows."""
    matrix = torch.ones(1, 1)
    while len(matrix) < 16:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return signs.unsqueeze(1) * matrix / 4.0


class Nvfp4Product(torch.autograd.Function):
    """x @ w.T by NVFP4 numbers, and both gradients, for which those of the result are rounded stochastically."""

    @staticmethod
    def forward(context, x, w, layer):
        weights = quantized(w, squares=True)
        context.save_for_backward(x, *weights)
        context.layer = layer
        return product(quantized(x.float()), weights.rows())

    @staticmethod
    def backward(context, g):
        (x, *weights), layer = context.saved_tensors, context.layer
        to_x = product(quantized(g.float(), draw=layer.draw), Quantized(*weights).columns())
        to_w = product(quantized(layer.turned(g.t()), draw=layer.draw), quantized(layer.turned(x.t())))
        return to_x, to_w.float(), None


class Nvfp4Linear(nn.Linear):
    """A linear layer by :class:`Nvfp4Product`; weights are FP32, what goes in and out BF16."""

    def __init__(self, inputs, outputs, signs, draw=torch.rand):
        super().__init__(inputs, outputs, bias=False)
        self.draw = draw
        self.register_buffer("rotation", rotation(signs))

    def turned(self, x):
        """Runs of 16 numbers of each row, which the rotation turns, so that outliers are spread over their run."""
        return (x.float().unflatten(-1, (-1, 16)) @ self.rotation).flatten(-2)

    def forward(self, x):
        return Nvfp4Product.apply(x, self.weight, self)


class Bf16Linear(nn.Linear):
    """A layer that the recipe keeps in BF16; its weights are FP32."""

    def forward(self, x):
        return F.linear(x, self.weight.bfloat16())


def model(signs, draw=torch.rand):
    """Two layers in NVFP4, and the last one in BF16."""
    return nn.Sequential(
        Nvfp4Linear(32, 64, signs, draw), nn.ReLU(), Nvfp4Linear(64, 48, signs, draw), nn.ReLU(),
        Bf16Linear(48, 10, bias=False),
    )  # fmt: skip
