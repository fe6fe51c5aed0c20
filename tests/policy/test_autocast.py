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


#: Programs of layers, values z and a parameter without axes, in either package.
SHARES = [
    lambda b, c, z, scale: z + b(z),
    lambda b, c, z, scale: b(z) * z.relu(),
    lambda b, c, z, scale: (z * b(z)).relu() + z,
    lambda b, c, z, scale: z + b(z) * c(z) + c(b(z)),
    lambda b, c, z, scale: b(z) * scale + c(z),
    lambda b, c, z, scale: z * scale,
]


@pytest.mark.parametrize("is_wide", [True, False])
def test_shares_of_a_gradient_are_added_as_wide_as_the_result_and_operands_without_axes_widen_nothing(is_wide):
    rng = np.random.default_rng(3)
    a, b, c, w = (np.float32(rng.integers(-15, 16, shape) / 8 + 1 / 16) for shape in ((4, 4),) * 3 + ((4,),))
    x, g = (np.float32(rng.integers(-127, 128, (5, 4)) / 32) for _ in "xg")
    x, scale = np.float32(np.trunc(4 * x) / 8), np.float32(1 + 2**-10)

    def run(program, nn, tensor, block):
        layers = [nn.Linear(4, 4, bias=False) for _ in "abc"]
        for layer, weight in zip(layers, (a, b, c), strict=True):
            layer.load_state_dict({"weight": tensor(weight.copy())})
        parameters = [nn.Parameter(tensor(each.copy())) for each in (w, np.array(scale))]
        with block:
            h = layers[0](tensor(x))
            y = program(*layers[1:], h * parameters[0] if is_wide else h, parameters[1])
            (y * tensor(g)).sum().backward()
        return y, [p.grad for p in (*[layer.weight for layer in layers], *parameters) if p.grad is not None]

    for program in SHARES:
        mine, gradients = run(program, sf.nn, lambda array: array, sf.simulate("amp-bf16"))
        y, expected = run(program, torch.nn, torch.tensor, torch.autocast("cpu", torch.bfloat16))
        assert mine.format == sf.as_format(y.dtype)
        assert_bits(mine.data, y.detach().float().numpy())
        for ours, theirs in zip(gradients, expected, strict=True):
            assert_bits(ours, theirs.numpy())


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
