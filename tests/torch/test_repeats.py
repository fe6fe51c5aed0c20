"""If a training continues in a new block with the same seed, a warning reports the repeated random bits once."""

import warnings

import pytest
import torch

import simfloat as sf
from simfloat.simulation.streams import SAMPLES

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def stepped(model, policy, seed=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sf.torch.simulate(model, policy, seed=seed):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()


def test_a_new_block_of_one_seed_for_every_step_is_reported_once_and_other_seeds_or_written_parameters_are_not():
    model = torch.nn.Linear(3, 2)
    begin = {name: x.clone() for name, x in model.state_dict().items()}
    for seed in (0, 1):
        stepped(model, "bf16-stochastic", seed)
    for _ in range(3):
        model.load_state_dict(begin)
        stepped(model, "bf16-stochastic", 1)
    with pytest.warns(UserWarning, match="draws the same random bits") as told:
        stepped(model, "bf16-stochastic", 1)
        stepped(model, "bf16-stochastic", 1)
    assert len(told) == 1


def test_many_forward_passes_of_one_seed_on_the_same_numbers_are_reported():
    model, policy = torch.nn.Linear(3, 2), sf.Policy(compute=sf.BF16, rounding=sf.stochastic(8))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(1, SAMPLES + 3):
            with sf.torch.simulate(model, policy):
                model(X)
            assert len(told) == (number >= SAMPLES)
