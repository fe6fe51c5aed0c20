"""Elementwise operations as written have the bits of PyTorch's CPU, if PyTorch rounds once."""

from itertools import islice

import pytest
import torch
from torch import nn

import simfloat as sf

pytest.importorskip("expecttest", reason="PyTorch's list of its operations needs it")

from benchmarks.opinfo import entries, inputs_of, refusal, title_of  # noqa: E402
from benchmarks.verdicts import same  # noqa: E402

#: What PyTorch computes in float32 by vector libraries, whose last bit is not always that of the nearest number; in 16
#: bits their results are rounded again, and the same but for a few numbers.
LIBRARY = """acos acosh asin asinh atan atan2 atanh cos cosh exp exp2 expm1 log log10 log1p log2 logaddexp sin sinh tan
    tanh pow __rpow__ float_power rsqrt sqrt hypot sigmoid erf erfc special.ndtr nn.functional.silu special.xlog1py
    nn.functional.logsigmoid nn.functional.mish nn.functional.softplus nn.functional.elu nn.functional.celu
    nn.functional.selu nn.functional.gelu special.entr xlogy logit sinc logaddexp2 lgamma mvlgamma digamma polygamma
    erfinv special.erfcx special.ndtri special.log_ndtr special.zeta special.polygamma i0 special.i0e special.i1
    special.i1e special.modified_bessel_i0 special.modified_bessel_i1""".split()

#: Polynomials in float32, by recurrences whose products and sums a compiler may fuse: their names hold this.
RECURRENCE = "_polynomial_"

#: What PyTorch's kernels round at every step in 16 bits, where we take steps in FP32 and round once.
TWICE = {
    "rsqrt": "the root is rounded before its reciprocal is",
    "xlogy": "the logarithm is rounded before the product",
    "special.xlog1py": "the logarithm is rounded before the product",
    "special.entr": "the logarithm is rounded before the product",
    "logit": "the quotient is rounded before its logarithm",
    "div.trunc_rounding": "the rounded quotient is cut; here it is that of the exact one",
    "ldexp": "the power of two is rounded, and may overflow, before the product",
    "atan2": "a float32 angle that is not the nearest one is rounded",
    "mvlgamma": "every logarithm, and the sum, is rounded",
    "special.i0e": "the steps of its series are rounded",
    "float_power": "a float64 power that is not the nearest one",
}


def first_results(entry, dtype, count):
    """Results by PyTorch and as written, of the operation's first samples, unless it is refused by name."""
    torch.manual_seed(0)
    for sample in islice(inputs_of(entry, dtype, False), count):
        want = entry.op(sample.input, *sample.args, **sample.kwargs)
        try:
            with sf.torch.simulate(torch.nn.Identity(), "as-written"):
                got = entry.op(sample.input, *sample.args, **sample.kwargs)
            yield from [(want, got)] if isinstance(want, torch.Tensor) else zip(want, got, strict=True)
        except ValueError as error:
            assert refusal(error).word == "refused"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_elementwise_operations_have_the_bits_of_pytorchs_cpu(dtype):
    exceptions = {*LIBRARY} if dtype == torch.float32 else {*TWICE}
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo  # takes 2.5 s

    chosen = [entry for entry in entries(()) if isinstance(entry, UnaryUfuncInfo | BinaryUfuncInfo)]
    differ, equal = set(), set()
    for entry in chosen:
        if dtype in entry.dtypes and not entry.name.startswith("jiterator"):
            found = list(first_results(entry, dtype, 2))
            is_equal = all(got.dtype == want.dtype and same(got, want) for want, got in found)
            name = entry.name if "gamma_" in entry.variant_test_name else title_of(entry)
            (equal if is_equal else differ).add(name) if found else None
    if dtype == torch.float32:
        exceptions |= {name for name in differ if RECURRENCE in name}
    assert differ <= exceptions and len(equal) > 80


#: Layers whose kernels take Python's numbers as float32 ones, or as those of the type, and round a result once.
CHOOSING = [
    nn.ReLU6(), nn.Hardtanh(-0.7, 1.3), nn.Threshold(0.1, 20), nn.LeakyReLU(), nn.LeakyReLU(0.3), nn.PReLU(),
    nn.RReLU().eval(), nn.RReLU(0.1, 0.3).eval(), nn.Hardshrink(0.3), nn.Softshrink(0.3), nn.Dropout(0.3),
]  # fmt: skip

#: And those whose steps PyTorch takes in float32, whose last bit some numbers in float16 show; it has no slopes there.
IN_BFLOAT16 = [
    nn.ELU(0.3), nn.SELU(), nn.Hardsigmoid(), nn.Hardswish(), nn.Softsign(), nn.Tanh(), nn.Tanhshrink(),
    nn.RReLU(0.1, 0.3),
]  # fmt: skip


def to_and_fro(layer, x):
    """The result, and the gradient where what comes back grows with the place."""
    torch.manual_seed(0)
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(torch.linspace(0.5, 1.5, len(x)).to(x.dtype))
    return y.detach(), x.grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_layers_have_these_bits_at_every_number_of_16_bits_and_at_their_bends(dtype):
    if dtype == torch.float32:
        bends = torch.tensor([-6.0, -0.7, -0.3, -0.1, 0.0, 0.1, 0.3, 1.3, 6.0])
        bends = torch.cat([bends, *(bends.nextafter(torch.tensor(end)) for end in (-torch.inf, torch.inf))])
        x = torch.cat([bends, torch.linspace(-8, 8, 997)])
    else:
        x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
        x = x[x.isfinite()]
    for layer in CHOOSING + IN_BFLOAT16 if dtype == torch.bfloat16 else CHOOSING:
        want = to_and_fro(layer.to(dtype), x)
        with sf.torch.simulate(layer, "as-written"):
            assert all(map(same, to_and_fro(layer, x), want)), layer
