"""Numbers next to 16-bit tensors, as written: PyTorch's CPU kernels bit for bit, and the rules for CUDA."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
import simfloat.torch

TYPES = [torch.bfloat16, torch.float16, torch.float32]
NUMBERS = {"Python's": lambda n: n, "float32": torch.tensor, "float64": lambda n: torch.tensor(n, dtype=torch.float64)}

#: Of a tensor, another one, and a number.
BY_NUMBER = {
    "x + n": lambda x, y, n: x + n,
    "x - n": lambda x, y, n: x - n,
    "n - x": lambda x, y, n: n - x,
    "x * n": lambda x, y, n: x * n,
    "x / n": lambda x, y, n: x / n,
    "n / x": lambda x, y, n: n / x,
    "x += n": lambda x, y, n: x.clone().add_(n),
    "fmod": lambda x, y, n: torch.fmod(x, n),
    "remainder": lambda x, y, n: torch.remainder(x, n),
    "where": lambda x, y, n: torch.where(x > 0, x, n),
    "copysign": lambda x, y, n: torch.copysign(x, n),
}
BY_OPTION = {
    "add": lambda x, y, n: torch.add(x, y, alpha=n),
    "sub": lambda x, y, n: torch.sub(x, y, alpha=n),
    "rsub": lambda x, y, n: torch.rsub(x, y, alpha=n),
    "add to a number": lambda x, y, n: torch.add(x, 1.3, alpha=n),
    "add_": lambda x, y, n: x.clone().add_(y, alpha=n),
    "lerp": lambda x, y, n: torch.lerp(x, y, n),
    "addcmul": lambda x, y, n: torch.addcmul(x, y, x, value=n),
    "addcmul of one": lambda x, y, n: torch.addcmul(x, y, x),
    "leaky_relu": lambda x, y, n: F.leaky_relu(x, n),
    "clamp": lambda x, y, n: x.clamp(-n, n),
    "huber_loss": lambda x, y, n: F.huber_loss(x, y, delta=n, reduction="none"),
    "smooth_l1_loss": lambda x, y, n: F.smooth_l1_loss(x, y, beta=n, reduction="none"),
    "mse_loss": lambda x, y, n: F.mse_loss(x, y, reduction="none"),
    "margin_ranking_loss": lambda x, y, n: F.margin_ranking_loss(x, y, y.sign(), margin=n, reduction="none"),
    "hinge_embedding_loss": lambda x, y, n: F.hinge_embedding_loss(x, y.sign(), margin=n, reduction="none"),
}


def operands(dtype):
    random = torch.Generator().manual_seed(0)
    return [(torch.randn(4096, generator=random) * 3).to(dtype) for _ in range(2)]


def as_written(function, policy="as-written"):
    with sf.torch.simulate(torch.nn.Identity(), policy):
        return function()


def assert_same(found, wanted):
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.double().numpy(), wanted.double().numpy())
    assert torch.equal(torch.signbit(found)[~found.isnan()], torch.signbit(wanted)[~wanted.isnan()])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", BY_NUMBER)
def test_a_number_next_to_a_tensor_gives_the_bits_of_the_cpu(name, kind, dtype):
    x, y = operands(dtype)
    for n in (1.7, 0.3, -1001.3, 3.0):
        wanted = BY_NUMBER[name](x, y, NUMBERS[kind](n))
        assert_same(as_written(lambda n=n: BY_NUMBER[name](x, y, NUMBERS[kind](n))), wanted)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", BY_OPTION)
def test_a_number_as_an_option_gives_the_bits_of_the_cpu(name, dtype):
    x, y = operands(dtype)
    for n in (1.7, 0.3):
        assert_same(as_written(lambda n=n: BY_OPTION[name](x, y, n)), BY_OPTION[name](x, y, n))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_integers_next_to_a_tensor_give_the_bits_of_the_cpu(dtype):
    x, _ = operands(dtype)
    for given in (1001, torch.tensor(1001)):
        for call in (lambda x, n: x + n, lambda x, n: x * n, lambda x, n: n - x):
            assert_same(as_written(lambda call=call, n=given: call(x, n)), call(x, given))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_soft_margin_rounds_every_step_in_16_bits(dtype):
    x, y = operands(dtype)
    call = lambda: F.soft_margin_loss(x, y.sign(), reduction="none")  # noqa: E731
    assert_same(as_written(call), call())


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
        steps = {
            "add": (lambda x=x: x + 1.7, wide + 1.7),
            "multiply": (lambda x=x: x * torch.tensor(1.7), wide * 1.7),
            "divide": (lambda x=x: x / 1.7, wide * float(np.float32(1) / n)),
        }
        for call, wanted in steps.values():
            assert_same(as_written(call, "as-written-cuda"), wanted.to(dtype))
        assert_same(as_written(lambda x=x, y=y: x / y, "as-written-cuda"), (wide / y.float()).to(dtype))


def test_the_preset_for_cuda_is_a_policy_like_others():
    policy = sf.policies["as-written-cuda"]
    assert policy.written == "cuda" and policy != sf.policies["as-written"]
    assert sf.Policy.from_toml(policy.to_toml()) == policy
    assert sf.Policy.from_dict(sf.policies["as-written"].to_dict()) == sf.policies["as-written"]
    with pytest.raises(ValueError, match="written: True, False or 'cuda' is expected, got 'gpu'"):
        sf.Policy(compute=sf.FP32, written="gpu")


@pytest.mark.parametrize(
    "policy", ["bf16-standard", "fp16-standard", "fp32", sf.Policy(compute=sf.BF16, reduce=sf.BF16)]
)
def test_running_sums_products_and_logarithms_are_those_of_every_part_by_itself(policy):
    torch.manual_seed(0)
    for shape, dim in (((40,), 0), ((7, 5), 0), ((5, 30), 1), ((60, 3), 0)):
        x = torch.randn(shape) * 2
        with sf.torch.simulate(torch.nn.Identity(), policy):
            x = x * 1
            parts = [x.narrow(dim, 0, i + 1) for i in range(shape[dim])]
            assert torch.equal(x.cumsum(dim), torch.stack([part.sum(dim) for part in parts], dim))
            assert torch.equal(x.logcumsumexp(dim), torch.stack([part.logsumexp(dim) for part in parts], dim))
            assert torch.equal(x.cumprod(dim), torch.stack([part.prod(dim) for part in parts], dim))


@pytest.mark.parametrize("operation", [lambda x: torch.heaviside(x, torch.tensor(0.5)), lambda x: x // 2,
                                       lambda x: torch.special.zeta(x.abs() + 2, x.abs())])  # fmt: skip
def test_explain_lists_an_operation_without_a_derivative(operation):
    class Model(torch.nn.Linear):
        def forward(self, x):
            return operation(super().forward(x))

    table = str(sf.torch.explain(Model(2, 2), torch.ones(3, 2), "fp32"))
    assert "no derivative" in table and "aten.addmm" in table
