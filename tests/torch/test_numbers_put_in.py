"""Values that movements insert into a tensor are rounded to the format of the result."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
import simfloat.torch

X = torch.tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0], [0.0, 1.0, 0.0]])
ROWS, ACROSS = torch.tensor([0, 2]), torch.tensor([[0, 1, 2]])


def simulated(policy, function):
    with sf.torch.simulate(torch.nn.Identity(), policy):
        return function()


def written(write):
    """A copy of x to which something is written."""

    def made(x, number):
        y = x.clone()
        write(y, number)
        return y

    return made


#: Each puts a number, Python's or a tensor without axes, into x.
PUTTING = {
    "masked_fill": lambda x, n: x.masked_fill(x > 2, n),
    "masked_fill_": written(lambda y, n: y.masked_fill_(y > 2, n)),
    "where": lambda x, n: torch.where(x > 2, x, n),
    "where, first": lambda x, n: torch.where(x > 2, n, x),
    "fill": lambda x, n: torch.fill(x, n),
    "fill_": written(lambda y, n: y.fill_(n)),
    "index_fill": lambda x, n: x.index_fill(0, ROWS, n),
    "index_fill_": written(lambda y, n: y.index_fill_(0, ROWS, n)),
    "a row": written(lambda y, n: y.__setitem__(1, n)),
    "an element": written(lambda y, n: y.__setitem__((1, 0), n)),
    "a slice": written(lambda y, n: y.__setitem__((slice(None), slice(1)), n)),
    "a mask": written(lambda y, n: y.__setitem__(y > 2, n)),
    "indices": written(lambda y, n: y.__setitem__((ROWS, ROWS), n)),
    "heaviside": lambda x, n: torch.heaviside(x, torch.as_tensor(n, dtype=x.dtype)),
    "nan": lambda x, n: torch.nan_to_num(x * torch.nan, nan=float(n)),
}

#: Those that take Python's numbers alone.
BY_PYTHON = {
    "pad": lambda x, n: F.pad(x, (1, 0, 0, 2), value=n),
    "full_like": torch.full_like,
    "new_full": lambda x, n: x.new_full((2, 2), n),
    "scatter": lambda x, n: x.scatter(0, ACROSS, n),
    "scatter_": written(lambda y, n: y.scatter_(0, ACROSS, n)),
    "fill_diagonal_": written(lambda y, n: y.fill_diagonal_(n)),
    "threshold": lambda x, n: F.threshold(x, 2, n),
    "clamp": lambda x, n: x.clamp(-n, n),
    "hardtanh": lambda x, n: F.hardtanh(x, 0, n),
    "_unsafe_masked_index": lambda x, n: torch.ops.aten._unsafe_masked_index(x, x > 2, [ROWS.new_tensor([0, 1, 2])], n),
}


@pytest.mark.parametrize("policy, dtype", [("fp16-standard", torch.float16), ("bf16-standard", torch.bfloat16)])
@pytest.mark.parametrize("name", [*PUTTING, *BY_PYTHON])
def test_an_inserted_number_is_rounded_to_the_format_of_the_tensor(name, policy, dtype):
    put = PUTTING.get(name) or BY_PYTHON[name]
    narrow = X.to(dtype)
    for number in (0.1, 1 / 3, 1e-9, 5, 4099):
        for given in (number,) if name in BY_PYTHON else (number, torch.tensor(float(number))):
            found = simulated(policy, lambda given=given: put(X * 1, given))
            # PyTorch's own of the narrow type, to which it casts the number first.
            assert torch.equal(found, put(narrow, torch.tensor(number).to(dtype).item()).float()), number


@pytest.mark.parametrize("name", ["masked_fill", "where", "index_fill", "an element", "pad", "scatter", "full_like"])
def test_a_number_beyond_the_format_becomes_infinite_or_stops_where_the_policy_saturates(name):
    put = PUTTING.get(name) or BY_PYTHON[name]
    for number in (-1e9, -(10**9), torch.finfo(torch.float32).min):
        found = simulated("fp16-standard", lambda number=number: put(X * 1, number))
        assert found.min() == -torch.inf
    saturating = replace(sf.policies["fp16-standard"], rounding=sf.nearest_even.saturating())
    assert simulated(saturating, lambda: put(X * 1, -1e9)).min() == -65504


def test_a_row_of_scores_that_is_masked_as_a_whole_is_nan_in_fp16_as_in_pytorchs_half():
    mask = torch.tensor([[True, True], [True, False]])
    weights = simulated("fp16-standard", lambda: (torch.ones(2, 2) * 1).masked_fill(mask, -1e9).softmax(-1))
    assert weights[0].isnan().all()
    assert weights[1].tolist() == [0.0, 1.0]


def test_data_keep_their_numbers_and_so_do_numbers_put_among_them():
    for put in (*PUTTING.values(), *BY_PYTHON.values()):
        if put in (PUTTING["nan"], *map(BY_PYTHON.get, ("threshold", "clamp", "hardtanh"))):
            continue  # these are operations, which round
        assert torch.equal(simulated("bf16-standard", lambda put=put: put(X, 0.1)), put(X, 0.1))


def test_a_result_keeps_its_format_next_to_a_number():
    """Under automatic mixed precision the next operation takes the format of its operands."""
    narrow = torch.eye(3)
    with sf.torch.simulate(torch.nn.Identity(), "amp-bf16"):
        scores = X @ narrow
        for masked in (scores.masked_fill(X > 2, 0.1), torch.where(X > 2, scores, torch.tensor(0.1))):
            found = masked + masked * 2**-9
            assert torch.equal(found, found.bfloat16().float())
        scores[0] = 1 / 3
        found = scores + scores * 2**-9
        assert torch.equal(found, found.bfloat16().float())


def test_a_tensor_that_replaces_a_single_number_is_that_number():
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        held = torch.ones(()) * 1
        held.copy_(torch.tensor(1 / 3))
        assert held == torch.tensor(1 / 3)


def test_numbers_of_another_type_are_left_unchanged():
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        assert torch.full_like(X * 1, 4099, dtype=torch.int64).unique().tolist() == [4099]
        assert torch.where(X > 2, torch.ones(3, 3, dtype=torch.int64), 4099).unique().tolist() == [1, 4099]
        assert ((X * 1) > torch.tensor(1.9999)).sum() == 5, "comparisons are exact"


def test_a_format_without_nan_refuses_nan_by_the_place():
    policy = sf.Policy(compute=sf.E2M1, activations=sf.E2M1)
    with pytest.raises(ValueError, match="where: .*NaN"):
        simulated(policy, lambda: torch.where(X > 2, X * 1, torch.nan))


@pytest.mark.parametrize("policy", ["fp16-standard", "bf16-standard", "fp32", "amp-bf16"])
def test_infinities_become_the_largest_numbers_of_the_results_format(policy):
    x = torch.tensor([[torch.inf, -torch.inf, torch.nan, 1.0]])
    format = {"fp16-standard": sf.FP16, "bf16-standard": sf.BF16}.get(policy, sf.FP32)
    with sf.torch.simulate(torch.nn.Identity(), policy):
        assert torch.nan_to_num(x).tolist() == [[format.max, format.min, 0.0, 1.0]]
        assert torch.nan_to_num(x, 2.0, posinf=3.0).tolist() == [[3.0, format.min, 2.0, 1.0]]
        assert torch.nan_to_num(x, neginf=-3.0).tolist() == [[format.max, -3.0, 0.0, 1.0]]
        y = x.clone()
        assert torch.equal(y.nan_to_num_(), torch.nan_to_num(x))


def test_nothing_is_counted_and_no_random_bit_is_drawn_for_them():
    recorder = sf.Recorder()
    policy = replace(sf.policies["bf16-standard"], rounding=sf.stochastic())
    with sf.torch.simulate(torch.nn.Identity(), policy, observer=recorder) as run:
        before, state = recorder.counts()["total"], run.state
        found = torch.where(X > 2, X.bfloat16().float(), 0.1)
        kept = torch.where(X > 2, found, 0.1)
        assert run.state == state
        assert recorder.counts()["total"] == before
    assert kept[0, 0] == np.float32(0.1), "data and a number"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, None])
@pytest.mark.parametrize("scale", [1.0, 0.37, 64.0])
def test_scaled_mm_has_the_type_that_is_asked_for_under_every_policy_and_pytorchs_bits(dtype, scale):
    random = torch.Generator().manual_seed(0)
    a, b = ((torch.randn(16, 32, generator=random) * 8).to(torch.float8_e4m3fn) for _ in range(2))

    def product():
        return torch._scaled_mm(a, b.t(), torch.tensor(scale), torch.tensor(1.0), out_dtype=dtype)

    # Sums of so few products of these are exact.
    for policy in ("as-written", "fp32", "fp64", "bf16-standard", "fp16-standard", "amp-bf16", "amp-fp16", "apex-o1"):
        found = simulated(policy, product)
        assert found.dtype == (dtype or a.dtype)
        assert torch.equal(found.float(), product().float()), policy
