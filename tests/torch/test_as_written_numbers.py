"""Numbers next to 16-bit tensors, as written: PyTorch's CPU kernels bit for bit, and the rules for CUDA."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
import simfloat.torch

TYPES = [torch.bfloat16, torch.float16, torch.float32]
KINDS = [lambda n: n, torch.tensor, lambda n: torch.tensor(n, dtype=torch.float64)]

#: Of a tensor x, another one y, and a number n, Python's or a tensor in float32 or float64.
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

#: Of Python's number.
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


def as_written(function, policy="as-written"):
    with sf.torch.simulate(torch.nn.Identity(), policy):
        return function()


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

    assert_same(as_written(gradients), gradients())


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
            assert_same(as_written(call, "as-written-cuda"), wanted.to(dtype))


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
