"""Blocks and threads, and blocks without operations of the model: PyTorch never takes over silently."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import torch
from torch import nn

import simfloat as sf

X = torch.ones(2, 3) / 3


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh())


def test_a_forward_pass_in_another_thread_is_refused():
    model = model_of()
    with ThreadPoolExecutor(1) as pool, sf.torch.simulate(model, "bf16-standard") as run:
        with pytest.raises(ValueError, match="Sequential is simulated in another thread's block"):
            pool.submit(model, X).result()
        with pytest.raises(ValueError, match="open in another thread"):
            pool.submit(run.__enter__).result()
        rounded = model(X)
    assert torch.equal(rounded, rounded.bfloat16().float())
    with ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(model, X).result(), model(X)), "after the block it is PyTorch's again"


def test_threads_may_have_blocks_of_their_own():
    def loss(model):
        with sf.torch.simulate(model, "bf16-standard"):
            return model(X)

    model = model_of()
    expected = loss(model)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(loss, [deepcopy(model) for _ in range(4)]):
            assert torch.equal(found, expected)


def test_a_plain_block_around_a_pytorch_model_warns():
    with pytest.warns(UserWarning, match=r"no operation of simfloat ran.*simfloat\.torch\.simulate"):
        with sf.simulate("bf16-standard"):
            model_of()(X)


def test_blocks_with_operations_of_ours_and_blocks_without_a_model_do_not_warn():
    with sf.simulate("bf16-standard") as sim:
        sf.Tensor(model_of()(X).detach().numpy()) + 1.0
    with sim, pytest.raises(KeyError):
        raise KeyError
    with sf.simulate("bf16-standard"):
        with sf.torch.simulate(model := model_of(), "bf16-standard"):
            model(X)
    with sf.torch.simulate(nn.Tanh(), "bf16-standard"):
        pass
