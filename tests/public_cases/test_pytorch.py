"""What others have reported about PyTorch's models and operations in 16 and 8 bits."""

import numpy as np
import pytest

import simfloat as sf

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
