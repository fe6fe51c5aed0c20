"""DistributedDataParallel in several processes: gradients are added in the role `all_reduce`."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import simfloat as sf
from tests.torch import replicas
from tests.torch.replicas import POLICY, REPLICAS, loss_of, model_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The results of each replica."""
    folder = tmp_path_factory.mktemp("replicas")
    program = [sys.executable, "-m", replicas.__name__, str(folder)]
    subprocess.run(program, check=True, timeout=400, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(REPLICAS)]


def test_gradients_of_a_bucket_are_added_around_a_ring_each_in_its_own_role(found):
    shares = []
    for rank in range(REPLICAS):
        model = model_of()
        with sf.torch.simulate(model, "fp32"):
            loss_of(model, rank).backward()
        shares.append([p.grad.numpy() for p in model.parameters()])
    paths = [path for path, _ in model.named_parameters()]
    formats = [POLICY.recipe(f"module.{path}", "update").all_reduce for path in paths]
    for number, (path, format) in enumerate(zip(paths, formats, strict=True)):
        # The bucket is one array of all gradients; here all are in one format, and one of them is looked at.
        bucket = [
            np.concatenate([sf.multiply(g, 1 / REPLICAS, format).ravel() for g in gradients]) for gradients in shares
        ]
        reduced = sf.all_reduce(bucket, accumulate=format)
        begin = sum(g.size for g in shares[0][:number])
        expected = reduced[begin : begin + shares[0][number].size]
        assert np.array_equal(np.ravel(found[0]["first"][number]), expected), path
    assert len(set(formats)) == 2


def test_every_replica_holds_the_same_numbers_also_of_a_static_graph_after_its_first_backward_pass(found):
    for replica in found:
        assert replica["first"] == found[0]["first"] == replica["static"] and replica["last"] == found[0]["last"]


def test_a_tensor_of_ones_own_is_added_as_by_an_addition(found):
    parts = [np.full(7, 1.0 + rank / 8, np.float32) for rank in range(REPLICAS)]
    expected = sf.all_reduce([sf.divide(x, 3.0, sf.FP32) for x in parts], accumulate=sf.FP32)
    assert np.array_equal(found[0]["by_hand"], expected)


def test_an_observer_counts_shares_and_sums_and_an_invalid_sum_is_refused_and_none_left_to_pytorch(found):
    size = len(np.ravel(found[0]["first"][0]))
    assert found[0]["counted"] == size + size  # a share's, and a sum's, at the parameter's own place
    assert "ReduceOp.SUM" in found[0]["refused"]
    assert not [name for name in found[0]["by PyTorch"] if "c10d" in name]
