"""A step under amp-bf16 against torch.autocast, on numbers whose sums are exact in any order."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

torch = pytest.importorskip("torch", reason="needs PyTorch as an oracle")
RNG = np.random.default_rng(8)


def small(shape, step):
    """Multiples of a power of two with few bits."""
    return np.float32(RNG.integers(-12, 13, shape) * step)


X, Y = small((8, 6), 2**-3), small((8, 4), 2**-2)
FIRST, SECOND = small((5, 6), 2**-4), small((4, 5), 2**-4)


def ours():
    model = sf.nn.Sequential(sf.nn.Linear(6, 5, bias=False), sf.nn.ReLU(), sf.nn.Linear(5, 4, bias=False))
    model.load_state_dict({"0.weight": FIRST, "2.weight": SECOND})
    with sf.simulate("amp-bf16"):
        y = model(X)
        loss = sf.nn.mse_loss(y, Y)
        loss.backward()
    return y, loss, [parameter.grad for parameter in model.parameters()]


def theirs():
    layers = torch.nn.Linear(6, 5, bias=False), torch.nn.ReLU(), torch.nn.Linear(5, 4, bias=False)
    model = torch.nn.Sequential(*layers)
    model.load_state_dict({"0.weight": torch.tensor(FIRST), "2.weight": torch.tensor(SECOND)})
    with torch.autocast("cpu", torch.bfloat16):
        y = model(torch.tensor(X))
        loss = torch.nn.functional.mse_loss(y, torch.tensor(Y))
    loss.backward()
    return y, loss, [parameter.grad.numpy() for parameter in model.parameters()]


def test_a_step_has_the_bits_of_torch():
    (y, loss, gradients), (their_y, their_loss, their_gradients) = ours(), theirs()
    assert y.format == sf.BF16 and their_y.dtype == torch.bfloat16
    assert loss.format == sf.FP32 and their_loss.dtype == torch.float32
    assert_bits(y.data, their_y.detach().float().numpy())
    assert float(loss) == pytest.approx(their_loss.item(), rel=1e-6), "a mean of which the order is not known"
    for mine, torchs in zip(gradients, their_gradients, strict=True):
        assert torchs.dtype == np.float32
        assert_bits(mine, torchs)


BF16, FP32 = (torch.randn(3, 4, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))


@pytest.mark.parametrize(
    "operation, operands",
    [
        (lambda a, b: a @ b.T, (FP32, FP32)),
        (lambda a, b: a @ b.T, (BF16, FP32)),
        (lambda a, b: a + b, (BF16, BF16)),
        (lambda a, b: a * b, (BF16, FP32)),
        (lambda a: a * 0.5, (BF16,)),
        (lambda a: a.tanh(), (BF16,)),
        (lambda a: a.sigmoid(), (FP32,)),
        (lambda a: a.abs(), (BF16,)),
    ],
)
def test_results_have_torchs_formats(operation, operands):
    with torch.autocast("cpu", torch.bfloat16):
        want = operation(*operands).dtype
    tensors = []
    for operand in operands:
        with sf.simulate(sf.Policy(compute=sf.as_format(operand.dtype))):
            tensors.append(sf.Tensor(operand.float().numpy()) * 1.0)
    with sf.simulate("amp-bf16"):
        assert operation(*tensors).format == sf.as_format(want)
