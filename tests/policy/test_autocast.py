"""Compare a step under amp-bf16 with torch.autocast, on values with sums that are exact in any order."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

torch = pytest.importorskip("torch", reason="needs PyTorch as an oracle")


def numbers(seed):
    """Data, targets and two weights: multiples of powers of two with few bits."""
    rng = np.random.default_rng(seed)
    shapes = (((8, 6), 2**-3), ((8, 4), 2**-2), ((5, 6), 2**-4), ((4, 5), 2**-4))
    return [np.float32(rng.integers(-12, 13, shape) * step) for shape, step in shapes]


def layers(nn):
    return nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 4, bias=False))


def ours(x, target, first, second):
    model = layers(sf.nn)
    model.load_state_dict({"0.weight": first, "2.weight": second})
    with sf.simulate("amp-bf16"):
        y = model(x)
        loss = sf.nn.mse_loss(y, target)
        loss.backward()
    return y, loss, [parameter.grad for parameter in model.parameters()]


def theirs(*numbers):
    x, target, first, second = map(torch.tensor, numbers)
    model = layers(torch.nn)
    model.load_state_dict({"0.weight": first, "2.weight": second})
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x)
        loss = torch.nn.functional.mse_loss(y, target)
    loss.backward()
    return y, loss, [parameter.grad.numpy() for parameter in model.parameters()]


@pytest.mark.parametrize("seed", range(8))
def test_a_step_has_the_bits_of_torch(seed):
    given = numbers(seed)
    (y, loss, gradients), (their_y, their_loss, their_gradients) = ours(*given), theirs(*given)
    assert y.format == sf.BF16 and their_y.dtype == torch.bfloat16
    assert loss.format == sf.FP32 and their_loss.dtype == torch.float32
    assert_bits(y.data, their_y.detach().float().numpy())
    assert float(loss) == pytest.approx(their_loss.item(), rel=1e-6), "a mean of which the order is not known"
    for mine, torchs in zip(gradients, their_gradients, strict=True):
        assert torchs.dtype == np.float32
        assert_bits(mine, torchs)


BF16, FP32 = (torch.randn(3, 4, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))


@pytest.mark.parametrize("operation, operands", [
    (lambda a, b: a @ b.T, (FP32, FP32)), (lambda a, b: a @ b.T, (BF16, FP32)), (lambda a, b: a + b, (BF16, BF16)),
    (lambda a, b: a * b, (BF16, FP32)), (lambda a: a * 0.5, (BF16,)), (lambda a: a.tanh(), (BF16,)),
    (lambda a: a.sigmoid(), (FP32,)), (lambda a: a.abs(), (BF16,)),
])  # fmt: skip
def test_results_have_torchs_formats(operation, operands):
    with torch.autocast("cpu", torch.bfloat16):
        want = operation(*operands).dtype
    tensors = []
    for operand in operands:
        with sf.simulate(sf.Policy(compute=sf.as_format(operand.dtype))):
            tensors.append(sf.Tensor(operand.float().numpy()) * 1.0)
    with sf.simulate("amp-bf16"):
        assert operation(*tensors).format == sf.as_format(want)
