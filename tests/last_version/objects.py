"""Objects of every public class that can be pickled; `python -m tests.last_version.objects` writes their pickles again.

The version of 28 November 2026 wrote the files in this folder. Its modules, classes and functions had other names.
"""

import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np

import simfloat as sf

HERE = Path(__file__).parent
PICKLES, CHECKPOINTS = HERE / "pickles.zip", HERE / "checkpoints"

POLICY = sf.Policy(compute=sf.BF16, accumulate=sf.FP32, weights=sf.BF16, reduce=sf.fused(4, 25), name="mine")
POLICY = POLICY.override("0", weights=sf.FP32)
POLICY = POLICY.override("2", operation="linear", compute=sf.scaled(sf.E4M3, sf.per_tensor()))


def numbers():
    """Formats, modes, draws, casts and arrays."""
    yield "formats", [sf.E4M3, sf.Format(5, 3), sf.fixed(8, 4), sf.p3109(8, 3), sf.FP32]
    yield "modes", [sf.to_odd, sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.nearest_away, sf.nearest_even]
    yield "stochastic mode", sf.stochastic(6)
    yield "bit stream", sf.BitStream(7)
    yield "given bits", sf.GivenBits(np.arange(8, dtype=np.uint64))
    yield "blocks", sf.block_quantize(np.linspace(-3, 3, 64).reshape(2, 32), sf.E4M3)
    yield "array", sf.array([1.5, 2.25], sf.BF16)
    yield "complex array", sf.array([1.5 + 2j], sf.FP16)
    by_block = sf.scaled(sf.E4M3, sf.block(32, sf.E8M0))
    yield "casts", [sf.scaled(sf.FP16, sf.per_tensor()), sf.scaled(sf.E5M2, sf.delayed(16)), by_block, sf.hadamard(16)]


def sums():
    """Accumulators of every kind."""
    yield "sequential", sf.sequential(sf.FP32)
    yield "pairwise", sf.pairwise(sf.FP16)
    yield "kahan", sf.kahan(sf.BF16)
    yield "lanes", sf.lanes(8, sf.FP32, sf.FP32)
    yield "blocked", sf.blocked(4, sf.sequential(sf.FP16), sf.FP32)
    yield "exact", sf.exact
    yield "fused", sf.fused(4, 25)
    yield "tree", sf.tree(((0, 1), (2, 3)), sf.FP16)
    yield "NumPy's order", sf.numpy_sum(sf.FP32)
    yield "a library's order", sf.library_sum("torch-sum")
    yield "tensor core", sf.tensor_core("hopper", sf.E4M3)
    yield "matrix core", sf.matrix_core("cdna3", sf.FP16)


def policies():
    """Policies, presets and what changes them."""
    yield "presets", {name: sf.policies[name] for name in sf.policies}
    yield "overrides", POLICY
    yield "recipe", POLICY.recipe
    yield "switching", sf.Switching("fp16-standard", "fp32", above=0.5)


def training():
    """A model, its optimizer and its data."""
    rng = np.random.default_rng(0)
    model = sf.nn.Sequential(sf.nn.Linear(4, 8, rng=0), sf.nn.ReLU(), sf.nn.Linear(8, 2, rng=1), sf.nn.LayerNorm(2))
    batches = sf.train.Batches(rng.standard_normal((16, 4)), rng.standard_normal((16, 2)), 8, epochs=4, seed=3)
    return model, sf.optim.AdamW(model.parameters(), lr=0.01), batches


def train(steps, **options):
    """A model after some steps, and its history."""
    model, optimizer, batches = training()
    with sf.simulate(sf.policies["bf16-stochastic"], seed=5):
        history = sf.train.fit(model, sf.nn.mse_loss, batches, optimizer, steps=steps, **options)
    return model, history


def trained():
    """A model, its optimizer and all that a training leaves."""
    model, optimizer, batches = training()
    scale = sf.optim.DynamicLossScale(256.0)
    schedule = sf.optim.StepLR(optimizer, 2)
    recorder = sf.Recorder()
    with sf.simulate(POLICY, observer=recorder, seed=5) as simulation:
        history = sf.train.fit(model, sf.nn.mse_loss, batches, optimizer, steps=4)
    yield "model", model
    yield "recorder", recorder
    yield "simulation", simulation
    yield "history", history
    yield "schedule", schedule
    yield "loss scale", scale
    yield "batches", batches


def other_models():
    yield "layers", [
        sf.nn.Conv2d(1, 2, 3, rng=0), sf.nn.BatchNorm2d(2), sf.nn.LSTM(2, 3, rng=0),
        sf.nn.MultiheadAttention(4, 2, rng=0), sf.nn.Embedding(5, 3, rng=0), sf.nn.Dropout(0.5), sf.nn.GELU(),
        sf.nn.TransformerEncoderLayer(4, 2, 8, rng=0), sf.nn.MaxPool2d(2), sf.nn.CrossEntropyLoss(),
        sf.nn.GroupNorm(1, 2), sf.nn.ModuleList([sf.nn.Linear(1, 1, rng=0)]),
    ]  # fmt: skip
    names = "SGD Adam Adamax NAdam RAdam RMSprop Adagrad Adadelta Adafactor Lion Muon".split()
    for name in names:
        p = sf.Parameter(np.ones((2, 2)))
        optimizer = getattr(sf.optim, name)([p], lr=0.1)
        with sf.simulate(sf.policies["bf16-stochastic"], seed=5):
            (p * p).sum().backward()
            optimizer.step()
        yield name, optimizer


def results():
    """Results of analyses."""
    rng = np.random.default_rng(1)
    model = sf.nn.Sequential(sf.nn.Linear(3, 4, rng=0), sf.nn.Tanh(), sf.nn.Linear(4, 1, rng=1))
    batch = rng.standard_normal((8, 3)), rng.standard_normal((8, 1))
    policy = sf.policies["fp16-standard"]
    yield "attribution", sf.attribute(model, sf.nn.mse_loss, batch, policy)
    yield "policy comparison", sf.compare(model, sf.nn.mse_loss, batch, ["bf16-standard", "fp16-standard"])
    yield "cost", sf.cost(model, sf.nn.mse_loss, batch, policy)
    yield "revealed order", sf.reveal(lambda a, b: sf.dot(a, b, accumulate=sf.pairwise(sf.FP16)), 8, inputs=sf.FP16)
    yield "limits", sf.finfo(sf.FP16)
    yield "diagnosis", sf.diagnose(model, sf.nn.mse_loss, [(1e4 * batch[0], batch[1])], policy, steps=3)


def objects():
    """Name and object of each."""
    for part in (numbers, sums, policies, trained, other_models, results):
        yield from part()


def write():
    """Pickle all, and train into a folder of checkpoints."""
    with zipfile.ZipFile(PICKLES, "w", zipfile.ZIP_DEFLATED) as file:
        for name, value in objects():
            file.writestr(name, pickle.dumps(value, protocol=4))
    shutil.rmtree(CHECKPOINTS, ignore_errors=True)
    train(4, checkpoint=CHECKPOINTS, every=2)


if __name__ == "__main__":
    write()
