"""Numbers that movements put into a tensor have the format of the result; numbers next to 16-bit tensors as written."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
import simfloat.torch
from tests.torch.compared import simulated

X = torch.tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0], [0.0, 1.0, 0.0]])
SCOPE = {"torch": torch, "F": F, "rows": torch.tensor([0, 2]), "across": torch.tensor([[0, 1, 2]])}

#: Each puts a number n, Python's or a tensor without axes, into x: the result, or a statement that writes to x.
PUTTING = """
x.masked_fill(x > 2, n)
x.masked_fill_(x > 2, n)
torch.where(x > 2, x, n)
torch.where(x > 2, n, x)
torch.fill(x, n)
x.fill_(n)
x.index_fill(0, rows, n)
x.index_fill_(0, rows, n)
x[1] = n
x[1, 0] = n
x[:, :1] = n
x[x > 2] = n
x[rows, rows] = n
torch.heaviside(x, torch.as_tensor(n, dtype=x.dtype))
torch.nan_to_num(x * torch.nan, nan=float(n))
""".strip().split("\n")

#: Operations that take only numbers of Python.
BY_PYTHON = """
F.pad(x, (1, 0, 0, 2), value=n)
torch.full_like(x, n)
x.new_full((2, 2), n)
x.scatter(0, across, n)
x.scatter_(0, across, n)
x.fill_diagonal_(n)
F.threshold(x, 2, n)
x.clamp(-n, n)
F.hardtanh(x, 0, n)
torch.ops.aten._unsafe_masked_index(x, x > 2, [rows.new_tensor([0, 1, 2])], n)
""".strip().split("\n")

#: These are operations, which round; all others are movements.
OPERATIONS = ("nan_to_num", "threshold", "clamp", "hardtanh")


def put(line, x, n):
    """What a line of the tables gives, or a copy of x to which it writes."""
    scope = {**SCOPE, "x": x.clone(), "n": n}
    if " = n" not in line:
        return eval(line, scope)
    exec(line, scope)
    return scope["x"]


@pytest.mark.parametrize("policy, dtype", [("fp16-standard", torch.float16), ("bf16-standard", torch.bfloat16)])
def test_an_inserted_number_is_rounded_to_the_format_of_the_tensor(policy, dtype):
    with sf.torch.simulate(torch.nn.Identity(), policy) as run:
        for line in (*PUTTING, *BY_PYTHON):
            for number in (0.1, 1 / 3, 1e-9, 5, 4099):
                with run.paused():  # PyTorch's own of the narrow type, to which it casts the number first
                    wanted = put(line, X.to(dtype), torch.tensor(number).to(dtype).item()).float()
                for given in (number,) if line in BY_PYTHON else (number, torch.tensor(float(number))):
                    assert torch.equal(put(line, X * 1, given), wanted), (line, number)


def test_a_number_beyond_the_format_becomes_infinite_or_stops_where_the_policy_saturates():
    saturating = replace(sf.policies["fp16-standard"], rounding=sf.nearest_even.saturating())
    for line in (PUTTING[0], PUTTING[2], PUTTING[6], PUTTING[9], *BY_PYTHON[:2], BY_PYTHON[3]):
        for number in (-1e9, -(10**9), torch.finfo(torch.float32).min):
            assert simulated(lambda at=line, n=number: put(at, X * 1, n), policy="fp16-standard").min() == -torch.inf
        assert simulated(lambda at=line: put(at, X * 1, -1e9), policy=saturating).min() == -65504


def test_data_keep_their_numbers_and_so_do_numbers_put_among_them():
    for line in (*PUTTING, *BY_PYTHON):
        if not any(name in line for name in OPERATIONS):
            assert torch.equal(simulated(put, line, X, 0.1), put(line, X, 0.1))


def test_a_result_keeps_its_format_next_to_a_number():
    """Under automatic mixed precision the next operation takes the format of its operands."""
    with sf.torch.simulate(torch.nn.Identity(), "amp-bf16"):
        scores = X @ torch.eye(3)
        written = scores.clone()
        written[0] = 1 / 3
        for masked in (scores.masked_fill(X > 2, 0.1), torch.where(X > 2, scores, torch.tensor(0.1)), written):
            found = masked + masked * 2**-9
            assert torch.equal(found, found.bfloat16().float())


def test_what_is_no_number_of_the_results_format_is_left_unchanged_or_refused_by_the_place():
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        held = torch.ones(()) * 1
        held.copy_(torch.tensor(1 / 3))  # a tensor that replaces a single number is that number
        assert held == torch.tensor(1 / 3)
        assert torch.full_like(X * 1, 4099, dtype=torch.int64).unique().tolist() == [4099]
        assert torch.where(X > 2, torch.ones(3, 3, dtype=torch.int64), 4099).unique().tolist() == [1, 4099]
        assert ((X * 1) > torch.tensor(1.9999)).sum() == 5, "comparisons are exact"
    policy = sf.Policy(compute=sf.E2M1, activations=sf.E2M1)
    with pytest.raises(ValueError, match="where: .*NaN"):
        simulated(lambda: torch.where(X > 2, X * 1, torch.nan), policy=policy)


def test_infinities_become_the_largest_numbers_of_the_results_format():
    x = torch.tensor([[torch.inf, -torch.inf, torch.nan, 1.0]])
    for policy, f in (("fp16-standard", sf.FP16), ("bf16-standard", sf.BF16), ("fp32", sf.FP32), ("amp-bf16", sf.FP32)):
        with sf.torch.simulate(torch.nn.Identity(), policy):
            assert torch.nan_to_num(x).tolist() == [[f.max, f.min, 0.0, 1.0]]
            assert torch.nan_to_num(x, 2.0, posinf=3.0).tolist() == [[3.0, f.min, 2.0, 1.0]]
            assert torch.nan_to_num(x, neginf=-3.0).tolist() == [[f.max, -3.0, 0.0, 1.0]]
            assert torch.equal(x.clone().nan_to_num_(), torch.nan_to_num(x))


def test_nothing_is_counted_and_no_random_bit_is_drawn_for_them():
    recorder = sf.Recorder()
    policy = replace(sf.policies["bf16-standard"], rounding=sf.stochastic())
    with sf.torch.simulate(torch.nn.Identity(), policy, observer=recorder) as run:
        before, state = recorder.counts()["total"], run.state
        found = torch.where(X > 2, X.bfloat16().float(), 0.1)
        kept = torch.where(X > 2, found, 0.1)
        assert run.state == state and recorder.counts()["total"] == before
    assert kept[0, 0] == np.float32(0.1), "data and a number"


def test_scaled_mm_has_the_type_that_is_asked_for_under_every_policy_and_pytorchs_bits():
    random = torch.Generator().manual_seed(0)
    a, b = ((torch.randn(16, 32, generator=random) * 8).to(torch.float8_e4m3fn) for _ in range(2))
    # Sums of so few products of these are exact.
    for policy in ("as-written", "fp32", "fp64", "bf16-standard", "fp16-standard", "amp-bf16", "amp-fp16", "apex-o1"):
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, None):
            for scale in (1.0, 0.37, 64.0):
                given = torch.tensor(scale), torch.tensor(1.0)
                found = simulated(lambda s=given, t=dtype: torch._scaled_mm(a, b.t(), *s, out_dtype=t), policy=policy)
                wanted = torch._scaled_mm(a, b.t(), *given, out_dtype=dtype)
                assert found.dtype == wanted.dtype and torch.equal(found.float(), wanted.float()), policy


TYPES = [torch.bfloat16, torch.float16, torch.float32]
KINDS = [lambda n: n, torch.tensor, lambda n: torch.tensor(n, dtype=torch.float64)]

#: Operations of a tensor x, a tensor y, and a number n, which is a number of Python or a tensor in float32 or float64.
BY_NUMBER = """
x + n
x - n
n - x
x * n
x / n
n / x
x.clone().add_(n)
torch.fmod(x, n)
torch.remainder(x, n)
torch.where(x > 0, x, n)
torch.copysign(x, n)
""".strip().split("\n")

#: Operations with a number of Python as an option.
BY_OPTION = """
torch.add(x, y, alpha=n)
torch.sub(x, y, alpha=n)
torch.rsub(x, y, alpha=n)
torch.add(x, 1.3, alpha=n)
x.clone().add_(y, alpha=n)
torch.lerp(x, y, n)
torch.addcmul(x, y, x, value=n)
torch.addcmul(x, y, x)
F.leaky_relu(x, n)
x.clamp(-n, n)
F.huber_loss(x, y, delta=n, reduction="none")
F.smooth_l1_loss(x, y, beta=n, reduction="none")
F.mse_loss(x, y, reduction="none")
F.margin_ranking_loss(x, y, y.sign(), margin=n, reduction="none")
F.hinge_embedding_loss(x, y.sign(), margin=n, reduction="none")
""".strip().split("\n")

#: Integers, and a loss that rounds every step in 16 bits.
OTHERS = ["x + 1001", "x * torch.tensor(1001)", "1001 - x", "torch.tensor(1001) - x", "torch.tensor(1.7) * x"]
SOFT_MARGIN = 'F.soft_margin_loss(x, y.sign(), reduction="none")'


def operands(dtype):
    random = torch.Generator().manual_seed(0)
    return [(torch.randn(1024, generator=random) * 3).to(dtype) for _ in range(2)]


def assert_same(found, wanted, of=None):
    assert found.dtype == wanted.dtype, of
    np.testing.assert_array_equal(found.double().numpy(), wanted.double().numpy(), err_msg=str(of))
    assert torch.equal(torch.signbit(found)[~found.isnan()], torch.signbit(wanted)[~wanted.isnan()]), of


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_number_next_to_a_tensor_or_as_an_option_gives_the_bits_of_the_cpu(dtype):
    x, y = operands(dtype)
    cases = [(line, kind(n)) for line in BY_NUMBER for kind in KINDS for n in (1.7, 0.3, -1001.3, 3.0)]
    cases += [(line, n) for line in BY_OPTION for n in (1.7, 0.3)] + [(line, None) for line in OTHERS]
    cases += [(SOFT_MARGIN, None)] if dtype != torch.float32 else []
    scope = {"torch": torch, "F": F, "x": x, "y": y}
    compute = [lambda line=line, n=n: eval(line, scope | {"n": n}) for line, n in cases]
    with sf.torch.simulate(torch.nn.Identity(), "as-written"):
        results = [each() for each in compute]
    for case, each, found in zip(cases, compute, results, strict=True):
        assert_same(found, each(), case)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_gradient_of_a_ranking_loss_has_the_signs_of_its_zeros(dtype):
    def gradients():
        x, y = (each.clone().requires_grad_() for each in operands(dtype))
        target = torch.ones_like(x) * (torch.arange(len(x)) % 2 * 2 - 1)
        F.margin_ranking_loss(x, y, target, margin=0.3, reduction="none").backward(target * 0.7)
        return torch.stack([x.grad, y.grad])

    assert_same(simulated(gradients, policy="as-written"), gradients())


def test_for_cuda_a_number_is_float32_and_a_quotient_a_product_with_its_reciprocal():
    for dtype in TYPES:
        x, y = operands(dtype)
        wide, n = x.float(), np.float32(1.7)
        for call, wanted in (
            (lambda x=x: x + 1.7, wide + 1.7),
            (lambda x=x: x * torch.tensor(1.7), wide * 1.7),
            (lambda x=x: x / 1.7, wide * float(np.float32(1) / n)),
            (lambda x=x, y=y: x / y, wide / y.float()),
        ):
            assert_same(simulated(call, policy="as-written-cuda"), wanted.to(dtype))


def test_the_preset_for_cuda_is_a_policy_like_others():
    policy = sf.policies["as-written-cuda"]
    assert policy.written == "cuda" and policy != sf.policies["as-written"]
    assert sf.Policy.from_toml(policy.to_toml()) == policy
    assert sf.Policy.from_dict(sf.policies["as-written"].to_dict()) == sf.policies["as-written"]
    with pytest.raises(ValueError, match="written: True, False or 'cuda' is expected, got 'gpu'"):
        sf.Policy(compute=sf.FP32, written="gpu")


def test_running_sums_products_and_logarithms_are_those_of_every_part_by_itself():
    torch.manual_seed(0)
    for policy in ("bf16-standard", "fp16-standard", "fp32", sf.Policy(compute=sf.BF16, reduce=sf.BF16)):
        for shape, dim in (((12,), 0), ((5, 9), 1), ((17, 3), 0)):
            x = torch.randn(shape) * 2
            with sf.torch.simulate(torch.nn.Identity(), policy):
                x = x * 1
                parts = [x.narrow(dim, 0, i + 1) for i in range(shape[dim])]
                assert torch.equal(x.cumsum(dim), torch.stack([part.sum(dim) for part in parts], dim))
                assert torch.equal(x.logcumsumexp(dim), torch.stack([part.logsumexp(dim) for part in parts], dim))
                assert torch.equal(x.cumprod(dim), torch.stack([part.prod(dim) for part in parts], dim))


def test_explain_lists_an_operation_without_a_derivative():
    class Model(torch.nn.Linear):
        def forward(self, x):
            return self.operation(super().forward(x))

    model = Model(2, 2)
    for model.operation in (
        lambda x: torch.heaviside(x, torch.tensor(0.5)), lambda x: x // 2,
        lambda x: torch.special.zeta(x.abs() + 2, x.abs()),
    ):  # fmt: skip
        table = str(sf.torch.explain(model, torch.ones(3, 2), "fp32"))
        assert "no derivative" in table and "aten.addmm" in table
