"""Rules reject the shapes and dtypes that PyTorch rejects."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import simfloat as sf

r = torch.ones

REFUSED = {
    "a linear layer of other inputs": lambda: F.linear(r(16, 3), r(8, 4), r(8)),
    "mm": lambda: torch.mm(r(3, 4), r(5, 2)),
    "mm of batches": lambda: torch.mm(r(2, 3, 4), r(2, 4, 5)),
    "bmm": lambda: torch.bmm(r(2, 3, 4), r(2, 5, 6)),
    "bmm of two batches": lambda: torch.bmm(r(2, 3, 4), r(3, 4, 6)),
    "bmm of matrices": lambda: torch.bmm(r(3, 4), r(4, 5)),
    "mv": lambda: torch.mv(r(3, 4), r(5)),
    "dot": lambda: torch.dot(r(4), r(5)),
    "addmm, which would enlarge the product": lambda: torch.addmm(r(5, 3, 2), r(3, 4), r(4, 2)),
    "addmm, too many rows": lambda: torch.addmm(r(3, 2), r(1, 4), r(4, 2)),
    "baddbmm": lambda: torch.baddbmm(r(3, 3, 5), r(2, 3, 4), r(2, 4, 5)),
    "addbmm, as many products": lambda: torch.addbmm(r(3, 5), r(2, 3, 4), r(4, 2, 5)),
    "attention": lambda: F.scaled_dot_product_attention(r(1, 2, 3, 4), r(1, 2, 5, 6), r(1, 2, 5, 4)),
    "layer norm": lambda: F.layer_norm(r(2, 4), (5,)),
    "layer norm's weight": lambda: F.layer_norm(r(2, 4), (4,), r(1)),
    "sum": lambda: r(2, 3).sum(4),
    "mean": lambda: r(2, 3).mean((0, -3)),
    "var": lambda: r(2, 3).var(2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_shapes_that_pytorch_rejects_raise_value_error(name):
    call = REFUSED[name]
    with pytest.raises((RuntimeError, IndexError)):
        call()
    with (
        sf.torch.simulate(torch.nn.Linear(1, 1), "bf16-standard"),
        torch.no_grad(),
        pytest.raises(ValueError, match="shape"),
    ):
        call()


def test_explain_names_the_shapes_of_a_sample_that_does_not_fit():
    with pytest.raises(ValueError, match=r"got shapes \(16, 3\) and \(4, 8\)"):
        sf.torch.explain(torch.nn.Linear(4, 8), r(16, 3), "bf16-standard")


r64 = partial(torch.ones, dtype=torch.float64)
integers = partial(torch.ones, dtype=torch.long)

REFUSED_TYPES = {
    "a linear layer of integers": lambda: F.linear(integers(16, 4), r(8, 4), r(8)),
    "a linear layer without a bias": lambda: F.linear(r64(16, 4), r(8, 4)),
    "a linear layer with another bias": lambda: F.linear(r(16, 4), r(8, 4), r64(8)),
    "a narrow one": lambda: F.linear(r(16, 4).bfloat16(), r(8, 4), r(8)),
    "bmm": lambda: torch.bmm(r(2, 3, 4), r64(2, 4, 5)),
    "mv": lambda: torch.mv(r64(3, 4), r(4)),
    "dot": lambda: torch.dot(r(4), integers(4)),
    "a convolution": lambda: F.conv1d(r64(1, 2, 4), r(3, 2, 2)),
    "a transposed convolution": lambda: F.conv_transpose1d(integers(1, 2, 4), r(2, 3, 2)),
    "a recurrent layer's state": lambda: torch.nn.GRU(4, 3)(r(2, 1, 4), r64(1, 1, 3)),
}


@pytest.mark.parametrize("policy", ["bf16-standard", "as-written"])
@pytest.mark.parametrize("name", REFUSED_TYPES)
def test_a_product_of_two_types_is_refused_as_in_pytorch(name, policy):
    call = REFUSED_TYPES[name]
    with torch.no_grad(), pytest.raises(RuntimeError):
        call()
    with sf.torch.simulate(torch.nn.Linear(1, 1), policy), torch.no_grad(), pytest.raises(ValueError, match="one type"):
        call()


def test_the_product_of_a_column_and_a_row_has_the_wider_type():
    with sf.torch.simulate(torch.nn.Linear(1, 1), "fp32"):
        assert torch.addr(r(3, 4), r64(3), r(4)).dtype == torch.float64
