"""Reported bugs of PyTorch's models and operations in 16 and 8 bits."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from tests.public_cases.oracle import BF16, FP32, rounded

torch = pytest.importorskip("torch")


def under(policy, function, *arguments):
    with sf.torch.simulate(torch.nn.Identity(), policy), torch.no_grad():
        return function(*arguments)


def test_normalizing_a_zero_vector_in_fp16_is_nan_as_its_eps_is_zero_there():
    """normalize's eps of 1e-12 vanished in half precision. https://github.com/huggingface/diffusers/pull/13316"""
    x = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])
    found = under("fp16-standard", lambda: torch.nn.functional.normalize(x, dim=1))
    theirs = torch.nn.functional.normalize(x.half(), dim=1).float()
    assert np.array_equal(found.numpy(), theirs.numpy(), equal_nan=True)
    assert (
        found[0].isnan().all() and under("amp-fp16", lambda: torch.nn.functional.normalize(x, dim=1)).isfinite().all()
    )


def test_a_cast_to_e4m3_is_that_of_pytorchs_processor_kernel():
    """Eager casts and compiled ones differed beyond 448. https://github.com/pytorch/ao/issues/1912"""
    x = torch.tensor([447.0, 464.0, 465.0, 1e6, -500.0, 0.3, 2.0**-10])
    found = under("as-written", lambda: x.to(torch.float8_e4m3fn))
    assert torch.equal(found.view(torch.uint8), x.to(torch.float8_e4m3fn).view(torch.uint8))


def test_scores_that_leave_fp16_before_they_are_scaled_do_no_harm_under_autocast():
    """q k^T overflowed before it was divided. https://github.com/ultralytics/ultralytics/pull/24990"""
    q = torch.full((1, 1, 4, 64), 200.0)
    attention = torch.nn.functional.scaled_dot_product_attention
    assert (under("amp-fp16", lambda: attention(q, q, q)) == 200).all()
    torch.manual_seed(0)
    q = 5 * torch.randn(1, 2, 32, 64)
    exact = attention(q.double(), q.double(), q.double())
    with torch.autocast("cpu", torch.bfloat16):
        theirs = attention(q, q, q).double()
    found = under("amp-bf16", lambda: attention(q, q, q)).double()
    assert (found - exact).abs().max() <= 2 * (theirs - exact).abs().max()


def test_alpha_is_applied_before_a_product_is_rounded():
    """Scores are scaled inside of the product for that reason. https://github.com/stanford-crfm/mistral/issues/66"""
    a, b = torch.full((1, 2, 64), 50.0), torch.full((1, 64, 2), 50.0)
    found = under("amp-fp16", lambda: torch.baddbmm(torch.zeros(1, 2, 2), a, b, beta=0, alpha=0.125))
    assert (found == 20000).all()


def test_a_mask_of_minus_1e9_is_minus_infinity_in_fp16():
    """The constant is beyond the range of half precision. https://github.com/ahrefs/ocannl/issues/548"""
    queries, keys = torch.zeros(2, 3), torch.ones(3, 4)
    scores, mask = queries @ keys, torch.tensor([[True] * 4, [False, True, False, True]])
    found = under("fp16-standard", lambda: (queries @ keys).masked_fill(mask, -1e9).softmax(-1))
    theirs = scores.masked_fill(mask, -torch.inf).softmax(-1)
    assert np.array_equal(found.numpy(), theirs.numpy(), equal_nan=True) and theirs[0].isnan().all()


def test_a_python_number_is_rounded_to_the_type_of_the_tensor_where_the_processor_does_so():
    """A number beside float16 was rounded first on one device only. https://github.com/pytorch/pytorch/issues/98691

    CUDA adds in float32, and rounds the sum.
    """
    x = torch.from_numpy(np.random.default_rng(2).standard_normal(500)).bfloat16()
    assert torch.equal(under("as-written", lambda: x + 1.7), x + 1.7)
    due = [rounded(rounded(Fraction(v) + Fraction(float(np.float32(1.7))), FP32), BF16) for v in x.double().tolist()]
    assert under("as-written-cuda", lambda: x + 1.7).tolist() == due
    assert (x + 1.7).tolist() != due
