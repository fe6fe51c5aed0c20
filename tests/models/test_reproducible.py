"""A training run has the same bits with other threads, other threads' runs and other processes at the same time."""

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import threads
from simfloat.sums import tiles

ROOT = Path(__file__).parents[2]


class Model(sf.nn.Module):
    """Some of everything that draws, sums and is split: a convolution, attention, dropout, large matrices."""

    def __init__(self):
        super().__init__()
        self.convolution = sf.nn.Conv2d(1, 4, 3, padding=1, rng=0)
        self.attention = sf.nn.MultiHeadAttention(16, 2, batch_first=True, rng=1)
        self.dropout = sf.nn.Dropout(0.25)
        self.norm = sf.nn.LayerNorm(64)
        self.head = sf.nn.Linear(64, 300, rng=2)

    def forward(self, x):
        y = self.convolution(x).relu().reshape(len(x), 4, 16)
        y, _ = self.attention(y, y, y, need_weights=False)
        return self.head(self.norm(self.dropout(y.reshape(len(x), 64))))


def digest_of_a_run(_=None):
    """Two steps under random rounding, observed: weights, moments, streams and counts as one number."""
    rng, model, recorder = np.random.default_rng(3), Model(), sf.Recorder()
    optimizer = sf.optim.AdamW(model.parameters(), lr=1e-2)
    policy = sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), update="stochastic", accumulate=sf.FP16)
    with sf.simulate(policy, seed=5, observer=recorder) as simulation:
        for _ in range(2):
            optimizer.zero_grad()
            loss = sf.nn.cross_entropy(model(rng.standard_normal((6, 1, 4, 4))), rng.integers(0, 300, 6))
            loss.backward()
            optimizer.step()
    arrays = [*model.state_dict().values(), *(moment for kept in optimizer.state for moment in kept.values())]
    texts = [json.dumps(simulation.state), recorder.table()]
    return hashlib.sha256(b"".join([a.tobytes() for a in arrays] + [text.encode() for text in texts])).hexdigest()


@pytest.fixture(scope="module")
def digest():
    return digest_of_a_run()


@pytest.mark.parametrize("count", [1, 3])
def test_any_number_of_threads_gives_the_same_bits(count, digest, monkeypatch):
    for module in (threads, tiles):
        monkeypatch.setattr(module, "LEAST_WORK", 100)  # so that little work is shared too
    before = sf.get_threads()
    sf.set_threads(count)
    try:
        assert digest_of_a_run() == digest
    finally:
        sf.set_threads(before)


def test_runs_in_several_threads_have_the_bits_of_a_single_run(digest):
    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(digest_of_a_run, range(3))) == {digest}


def test_processes_at_the_same_time_give_the_same_bits(digest):
    code = "from tests.models.test_reproducible import digest_of_a_run; print(digest_of_a_run())"
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONHASHSEED": "1"}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert digest_of_a_run() == digest
        assert other.communicate(timeout=300)[0].strip() == digest
