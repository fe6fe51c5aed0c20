"""PyTorch models on a GPU: every rule computes on CuPy's arrays, with the bits of the CPU.

PyTorch's own tensors stay on the CPU here. The stand-in for CuPy takes their memory by DLPack, as CuPy takes the memory
of a tensor on a GPU, and never mixes with NumPy's arrays.
"""

import sys
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")
torch = pytest.importorskip("torch")

import simfloat as sf  # noqa: E402
import simfloat.torch.tensors  # noqa: E402
from simfloat.torch.on_gpu import COMPOSITIONS  # noqa: E402
from simfloat.torch.search import handler_of  # noqa: E402
from simfloat.torch.tensors import memory_of  # noqa: E402
from simfloat.train.torch_states import RandomState  # noqa: E402
from simfloat.train.torch_step import batch_tensors  # noqa: E402
from tests.cuda import standin  # noqa: E402
from tests.cuda.devices import Counting, StandIn, TooLong  # noqa: E402
from tests.torch.compared import entries, found  # noqa: E402
from tests.torch.test_architectures import MODELS  # noqa: E402
from tests.torch.test_layers import LAYERS  # noqa: E402

F, nn, ATEN = torch.nn.functional, torch.nn, torch.ops.aten
X, Y = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
CLASSES, IMAGE = torch.tensor([0, 1, 1]), X.reshape(1, 1, 3, 4)


@contextmanager
def on_gpu(most_steps=None, device=None):
    """A block in which the tensors of PyTorch have the arrays of the stand-in."""
    before = simfloat.torch.tensors.HOST
    with (device or StandIn(most_steps)).present():
        # As with CuPy, PyTorch refuses to export tensors that require a gradient.
        sys.modules["cupy"].from_dlpack = lambda x: standin.array_of(np.from_dlpack(x))
        simfloat.torch.tensors.HOST = "none"
        try:
            yield
        finally:
            simfloat.torch.tensors.HOST = before


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        q = self.query(x)[None, None]
        return self.out(F.scaled_dot_product_attention(q, q, q, is_causal=True)[0, 0])


class Recurrent(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]


def perceptron(*inner):
    return nn.Sequential(nn.Linear(4, 3), *inner, nn.Linear(3, 4))


sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
adamw = partial(torch.optim.AdamW, lr=0.1)

#: Models with a policy, an optimizer and an input.
TRAININGS = {
    "perceptron": (lambda: perceptron(nn.ReLU()), "bf16-standard", sgd, X),
    "FP8": (lambda: perceptron(nn.Tanh()), "fp8-hybrid", adamw, X),
    "automatic mixed precision": (lambda: perceptron(nn.GELU()), "amp-bf16", adamw, X),
    "stochastic updates": (lambda: perceptron(nn.LayerNorm(3), nn.SiLU()), "bf16-stochastic", adamw, X),
    "batch norm": (lambda: perceptron(nn.BatchNorm1d(3), nn.Dropout(0.5)), "fp16-master", sgd, X),
    "Kahan": (lambda: perceptron(nn.RMSNorm(3), nn.Softmax(-1)), "bf16-kahan", sgd, X),
    "images": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 4)),
        "bf16-standard", sgd, IMAGE,
    ),
    "attention": (Attention, "bf16-standard", sgd, X),
    "fused attention": (Attention, "amp-fp16", sgd, X),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 4)), "bf16-standard", adamw, CLASSES),
    "recurrent": (lambda: Recurrent(4, 4), "bf16-standard", sgd, X),
    "as written": (lambda: perceptron(nn.ReLU()).bfloat16(), "as-written", sgd, X.bfloat16()),
}  # fmt: skip


def train(make, policy, optimizer_of, x, observer=None):
    """The loss, parameters, gradients and moments after two steps."""
    torch.manual_seed(0)
    model = make()
    optimizer = optimizer_of(model.parameters())
    with sf.torch.simulate(model, policy, observer=observer):
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), CLASSES[: len(x)])
            loss.backward()
            optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    return [loss, *model.parameters(), *(p.grad for p in model.parameters()), *states]


@pytest.mark.filterwarnings("ignore:.*draws the same random bits")
def test_a_training_of_a_pytorch_model_on_a_gpu_has_the_bits_of_the_cpu():
    for name, training in TRAININGS.items():
        counts, counts_on_gpu = sf.Recorder(), sf.Recorder()
        expected = train(*training, counts)
        with on_gpu():
            results = train(*training, counts_on_gpu)
        assert all(map(torch.equal, results, expected)), name
        assert entries(counts) == entries(counts_on_gpu), name


def unwatched(optimizer_of, policy, started=()):
    """The parameters and the optimizer state after two steps, and what the second update started."""
    torch.manual_seed(0)
    model = perceptron(nn.Tanh())
    optimizer = optimizer_of(model.parameters())
    with sf.torch.simulate(model, policy):
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(X), CLASSES[: len(X)]).backward()
            before = len(started)
            optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    return [*model.parameters(), *states], started[before:]


@pytest.mark.filterwarnings("ignore:.*draws the same random bits")
def test_an_update_of_a_pytorch_model_on_a_gpu_is_one_launch_a_parameter():
    nesterov = partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
    for optimizer_of, policy, foreach in (
        *((sgd, "bf16-standard", {}), (nesterov, "bf16-stochastic", {"foreach": True}), (nesterov, "fp8-hybrid", {})),
        *((adamw, "bf16-stochastic", {"foreach": True}), (adamw, "bf16-kahan", {})),
        (partial(torch.optim.Adam, lr=0.1), "fp16-master", {"foreach": True}),
        (partial(torch.optim.RMSprop, lr=0.1), "bf16-standard", {"foreach": True}),
    ):
        expected, _ = unwatched(partial(optimizer_of, **foreach), policy)
        device = Counting()
        with on_gpu(device=device):
            results, started = unwatched(partial(optimizer_of, **foreach), policy, device.started)
        assert all(map(torch.equal, results, expected)), policy
        assert started == ["programs"] * 4, policy


def test_layers_and_models_of_pytorch_have_the_bits_of_the_cpu_on_a_gpu():
    compared = 0
    for name, (make, *operands) in (LAYERS | MODELS).items():
        expected = found(make, operands, "bf16-standard", torch.float32)
        try:
            with on_gpu(300):
                results = found(make, operands, "bf16-standard", torch.float32)
        except TooLong:
            continue
        for a, b in zip(results, expected, strict=True):
            assert (a is b is None) or torch.equal(a.nan_to_num(), b.nan_to_num()), name
        compared += 1
    assert compared > 40


def fitted(device, folder=None, resume=None, steps=2):
    """Return the parameters after `fit` with a scaler, with weights scaled by their largest magnitudes so far."""
    torch.manual_seed(0)
    model = perceptron(nn.Dropout(0.5))
    batches = sf.train.Batches(X.numpy(), Y.numpy(), 3, epochs=2, seed=0)
    options = {"steps": steps, "checkpoint": folder, "resume": resume, "progress": False}
    with device(), sf.torch.simulate(model, "fp8-delayed"):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        sf.train.fit(model, F.mse_loss, batches, adamw(model.parameters()), scaler=scaler, clip=1.0, **options)
    return list(model.parameters())


def test_a_checkpoint_of_a_gpu_continues_on_the_cpu_and_the_reverse(tmp_path, monkeypatch):
    expected = fitted(nullcontext)
    for number, (first, second) in enumerate([(on_gpu, nullcontext), (nullcontext, on_gpu)]):
        fitted(first, tmp_path / str(number), steps=1)
        assert all(map(torch.equal, fitted(second, resume=tmp_path / str(number)), expected))
    # Random states of more GPUs than there are continue on the first ones.
    states, restored = [torch.zeros(16), torch.ones(16)], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.extend)
    RandomState().load_state_dict({"cpu": torch.get_rng_state(), "cuda": states})
    assert restored == states[:1]


def test_tensors_of_two_devices_are_refused_with_what_to_write():
    layer, x = nn.Linear(4, 3), X.clone()
    with on_gpu(), sf.torch.simulate(layer, "bf16-standard"):
        on_device, memory = sys.modules["cupy"].from_dlpack, memory_of(x)
        sys.modules["cupy"].from_dlpack = lambda t: (np.from_dlpack if memory_of(t) == memory else on_device)(t)
        for call in (lambda: layer(x), lambda: layer(X) + x[:, :3], lambda: F.mse_loss(layer(X), x[:, :3])):
            with pytest.raises(ValueError, match=r"another one, of shape .*, is not: .* x\.to\('cuda'\)"):
                call()


def test_a_model_on_a_gpu_without_cupy_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr(simfloat.torch.tensors, "HOST", "none")
    monkeypatch.setattr(simfloat.torch.tensors, "what_cuda_lacks", lambda: "CuPy is not installed")
    with pytest.raises(ValueError, match=r"'weight' is on .*; CuPy is not installed: pip install 'simfloat\[cuda\]'"):
        sf.torch.simulate(nn.Linear(4, 3), "bf16-standard").__enter__()
    assert batch_tensors([X], torch.float32, torch.device("meta"))[0].device.type == "meta", "fit moves batches"


class FirstResult(nn.Sequential):
    def forward(self, x):
        return self[0](x[None])[0][0]


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(4, 3), nn.GRUCell(3, 4, bias=False)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])


SIGMOID = sf.policies["bf16-standard"].override(operation="sigmoid", activations=sf.FP32)

#: Models with parts that PyTorch computes by single kernels on a GPU.
OF_ONE_KERNEL = {
    "LSTM": (lambda: FirstResult(nn.LSTM(4, 2)), SIGMOID),
    "GRU": (lambda: FirstResult(nn.GRU(4, 2, bidirectional=True)), "bf16-standard"),
    "cells": (Cells, "bf16-standard"),
    "RMSNorm and dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.RMSNorm(4)), "bf16-standard"),
}


def test_operations_that_are_one_kernel_on_a_gpu_are_computed_by_those_of_the_cpu(monkeypatch):
    def results(make, policy, recorder, device):
        torch.manual_seed(0)
        model, x = make(), X.clone().requires_grad_()
        with device(), sf.torch.simulate(model, policy, observer=recorder):
            assert not torch.backends.cudnn.enabled
            model(x).square().sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    for name, (make, policy) in OF_ONE_KERNEL.items():
        counts, counts_on_gpu = sf.Recorder(), sf.Recorder()
        expected = results(make, policy, counts, nullcontext)
        with monkeypatch.context() as context:
            for kernel in COMPOSITIONS:
                context.setattr(torch._VF, kernel, None)
                context.setattr(torch, kernel, None)
            assert all(map(torch.equal, results(make, policy, counts_on_gpu, on_gpu), expected)), name
        assert entries(counts) == entries(counts_on_gpu), name


def test_functions_for_a_gpu_have_the_bits_of_functions_of_pytorch_on_a_cpu():
    rows, state, cells = X, Y[:, :3], [torch.linspace(-1, 1, n).reshape(-1, m) for n, m in ((48, 4), (36, 3))]
    gates, bias = [w[:9] for w in cells], torch.linspace(-1, 1, 12)
    for dtype in (torch.float32, torch.bfloat16):
        x, h, w_ih, w_hh, u_ih, u_hh, b = (t.to(dtype) for t in (rows, state, *cells, *gates, bias))
        for name, arguments in (
            ("lstm_cell", (x, (h, h), w_ih, w_hh, b, b)), ("gru_cell", (x, h, u_ih, u_hh, b[:9], b[:9])),
            ("rms_norm", (x, (4,), x[0])), ("rms_norm", (x, x.shape, None, 1e-3)), ("dropout", (x, 0.3, True)),
            ("dropout", (x, 1.0, True)), ("dropout", (x, 0.3, False)),
        ):  # fmt: skip
            results = []
            for function in (getattr(torch, name), COMPOSITIONS[name]):
                torch.manual_seed(0)
                results.append(function(*arguments))
            expected, ours = (y if isinstance(y, tuple) else (y,) for y in results)
            assert all(map(torch.equal, ours, expected)), name
    assert "use model.cpu() for sequences of several lengths" in handler_of(ATEN._thnn_fused_gru_cell.default).remedy


def test_softmax_converts_before_it_computes_as_on_a_cpu(monkeypatch):
    x, kernel = X.bfloat16(), ATEN._softmax

    def softmax(x, dim, dtype):
        return kernel(x, dim, x.dtype != dtype)  # as on a GPU, where the kernel converts

    expected = train_softmax(x)
    monkeypatch.setattr(torch, "softmax", softmax)
    assert all(map(torch.equal, train_softmax(x), expected)) and expected[0].dtype == torch.float32


def train_softmax(x):
    operand = x.clone().requires_grad_()
    with sf.torch.simulate(nn.Identity(), "as-written-cuda"):
        y = torch.softmax(operand, -1, dtype=torch.float32)
        y.square().sum().backward()
    return y.detach(), operand.grad
