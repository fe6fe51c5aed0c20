"""Pointwise operations of both front ends have the same results and gradients, bit for bit."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.autodiff.pointwise import DIFFERENTIABLE
from tests.torch.compared import assert_functions_alike

RNG = np.random.default_rng(3)
EDGES = np.array([0.0, 1.0, 2.0, 3.0, 0.5, 1e-3, 3e-5, 7.0, 100.0, 2.0**-126], np.float32)
LEFT, RIGHT = (each.ravel() for each in np.meshgrid(EDGES, np.concatenate([EDGES, -EDGES[1:]])))
UNIT = np.concatenate([RNG.uniform(-1, 1, 64).astype(np.float32), EDGES[EDGES < 1]])
POSITIVE = np.concatenate([RNG.uniform(0.05, 6, 64).astype(np.float32), LEFT])
A, B = (np.concatenate([2 * RNG.standard_normal(64).astype(np.float32), x]) for x in (RIGHT, LEFT))

POLICIES = {
    **{name: sf.policies[name] for name in ("bf16-standard", "fp16-standard", "amp-bf16", "fp8-hybrid")},
    "fp8-like": sf.Policy(
        compute=sf.BF16, activations=sf.E4M3, activation_gradients=sf.E5M2, weight_gradients=sf.E5M2, weights=sf.FP32
    ),
    "toward zero": sf.Policy(compute=sf.BF16, rounding=sf.toward_zero),
    # Products before and after are wider than the results between them, which underflow and overflow there; and
    # powers, for x.square() is one in PyTorch, and a product here.
    "narrow between": sf.Policy(compute=sf.FP32, activations=sf.E4M3, gradients=sf.BF16).override(
        operation=("multiply", "power"), activations=sf.FP32
    ),
}

#: Where functions are defined.
OPERANDS = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "log1p"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh"), UNIT),
    "acosh": POSITIVE + 1,
    **dict.fromkeys(("lgamma", "digamma", "erfinv"), UNIT),
    "ndtri": np.abs(UNIT),
}

#: Functions of one operand that PyTorch has under our names.
OF_ONE = {
    name: getattr(torch, name, None) or getattr(torch.special, name, None)
    for name, row in FUNCTIONS.items()
    if len(row.operands) == 1
}

#: By our name: the operation in PyTorch, in this package, and operands.
OPERATIONS = {
    **{name: (getattr(torch, name), getattr(sf.Tensor, name), A) for name in ("relu", "square", "negative")},
    **{
        name: (theirs, getattr(sf.Tensor, name), OPERANDS.get(name, A))
        for name, theirs in OF_ONE.items()
        if theirs is not None
    },
    # PyTorch has no slope in the first operand.
    "zeta": (lambda x: torch.special.zeta(2.5, x), lambda x: sf.Tensor(2.5).zeta(x), POSITIVE),
    **{
        name: (getattr(torch, name), getattr(sf.Tensor, name), A, B)
        for name in ("add", "subtract", "multiply", "divide", "atan2")
    },
    **{  # of zeros of unlike signs PyTorch's largest and smallest is any
        name: (getattr(torch, name), getattr(sf.Tensor, name), A[:64], B[:64]) for name in ("maximum", "minimum")
    },
    "abs": (torch.abs, sf.Tensor.abs, A[:64]),  # beyond E4M3 lies NaN, whose sign is 0 in PyTorch
    "gelu": (F.gelu, sf.Tensor.gelu, A),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.3), lambda x: x.leaky_relu(0.3), A),
    "clip": (lambda x: x.clip(-1.0, 1.5), lambda x: x.clip(-1.0, 1.5), A),
    "hardtanh": (lambda x: F.hardtanh(x, -1.0, 0.5), lambda x: x.hardtanh(-1.0, 0.5), A),
    "power": (torch.pow, sf.Tensor.power, POSITIVE, A),
    **{
        f"power {n}": (lambda x, n=n: x**n, lambda x, n=n: x**n, POSITIVE) for n in (0.0, 0.5, 0.7, 1.0, 2.0, 3.0, -1.0)
    },
    **{f"{n} to the power": (lambda x, n=n: n**x, lambda x, n=n: n**x, A[:64]) for n in (2.7, 2.0, 1.0, 0.3)},
    "divide by a number": (lambda x: x / 3.0, lambda x: x / 3.0, A),
}


def test_all_pointwise_operations_are_compared_but_the_fused_multiply_add():
    lacking = {name for name, theirs in OF_ONE.items() if theirs is None}
    # PyTorch has no fma: addcmul rounds the product. It computes hypot by a formula.
    assert set(DIFFERENTIABLE) - set(OPERATIONS) == {"fma", "hypot"} | lacking - {"gelu"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_pointwise_operation_has_the_same_bits_under_both_front_ends(name):
    theirs, ours, *operands = OPERATIONS[name]
    assert_functions_alike(POLICIES, lambda _, *x: theirs(*x), lambda _, *x: ours(*x), *operands)
