"""FP8 recipes as PyTorch programs, from the papers and documentation of torchao and TransformerEngine."""

import torch
from torch import nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def current_scale(x, dtype):
    """The type's largest number / the largest magnitude, in FP64 and then in FP32 (torchao, tensorwise scaling)."""
    return (torch.finfo(dtype).max / x.detach().abs().max().double().clamp(min=1e-12)).float()


def to_float8(x, scale, dtype):
    """x * scale in FP32, saturated, as float8."""
    most = torch.finfo(dtype).max
    return (x.detach().float() * scale).clamp(-most, most).to(dtype)


def scaled_product(a, scale_a, b, scale_b):
    """a @ b, scaled back, in BF16; the second operand of torch._scaled_mm is column-major."""
    columns = b.t().contiguous().t()
    return torch._scaled_mm(a, columns, scale_a.reciprocal(), scale_b.reciprocal(), out_dtype=torch.bfloat16)


class Amaxes:
    """The largest magnitudes of one operand so far, which give the next scale (TransformerEngine, DelayedScaling)."""

    def __init__(self):
        self.found = []

    def scale(self, x, dtype):
        before = max(self.found[-1024:], default=None)
        self.found.append(float(x.detach().abs().max()))
        return torch.tensor(1.0) if before is None else torch.tensor(torch.finfo(dtype).max) / torch.tensor(before)


class Float8Product(torch.autograd.Function):
    """x @ w.T with E4M3 operands, and both gradients with those of the result in E5M2."""

    @staticmethod
    def forward(context, x, w, scale_of):
        scales = scale_of("x", x, E4M3), scale_of("w", w, E4M3)
        x8, w8 = to_float8(x, scales[0], E4M3), to_float8(w, scales[1], E4M3)
        context.scale_of, context.scales = scale_of, scales
        context.save_for_backward(x8, w8)
        return scaled_product(x8, scales[0], w8.t(), scales[1])

    @staticmethod
    def backward(context, g):
        (x8, w8), (scale_x, scale_w) = context.saved_tensors, context.scales
        scale = context.scale_of("g", g, E5M2)
        g8 = to_float8(g, scale, E5M2)
        to_x = scaled_product(g8, scale, w8, scale_w)
        return to_x, scaled_product(g8.t().contiguous(), scale, x8, scale_x).float(), None


class Float8Linear(nn.Linear):
    """A linear layer by :class:`Float8Product`; weights are FP32, what goes in and out BF16."""

    def __init__(self, inputs, outputs, is_delayed=False):
        super().__init__(inputs, outputs, bias=False)
        self.amaxes = {name: Amaxes() for name in "xwg"} if is_delayed else None

    def scale_of(self, name, x, dtype):
        return current_scale(x, dtype) if self.amaxes is None else self.amaxes[name].scale(x, dtype)

    def forward(self, x):
        return Float8Product.apply(x, self.weight, self.scale_of)
