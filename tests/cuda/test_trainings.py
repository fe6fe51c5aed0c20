"""Trainings on a GPU: every layer, loss and optimizer has a case, and checkpoints move between devices."""

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")

import simfloat as sf  # noqa: E402
from simfloat.optim import optimizer as optimizers  # noqa: E402
from simfloat.optim.clipping import sum_of_squares  # noqa: E402
from tests.bits import assert_all_bits  # noqa: E402
from tests.cuda import standin  # noqa: E402
from tests.cuda.cases import compare, given, layers, trainings  # noqa: E402
from tests.cuda.devices import Counting, StandIn  # noqa: E402


def test_every_layer_and_loss_has_its_case():
    losses = {name for name in layers.public(sf.nn, sf.nn.Module) if name.endswith("Loss")}
    assert layers.public(sf.nn, sf.nn.Module) - {"Module"} - losses == set(layers.LAYERS)
    assert {name for name in sf.nn.__all__ if name.endswith(("_loss", "_entropy", "_logits"))} == set(layers.LOSSES)


def test_squares_are_added_on_a_gpu_in_the_cpus_order(rng):
    x = rng.standard_normal((13, 17))
    with StandIn().present():
        assert sum_of_squares(standin.moved(x)) == sum_of_squares(x)


def steps(count, folder, device, move):
    """A training up to so many steps, begun or gone on with in the folder; the weights on the CPU."""
    x, y = (move(layers.input_of(shape)) for shape in ((5, 4), (5, 2)))
    model = sf.nn.MLP([4, 3, 2], rng=1)
    with sf.simulate("bf16-stochastic", seed=4):
        optimizer = sf.optim.Adam(model.parameters(), lr=0.1)
        options = {"checkpoint": folder, "resume": folder, "every": 1, "device": device, "progress": False}
        sf.train.fit(
            model, sf.nn.mse_loss, [(x, y)] * count, optimizer, scaler=sf.optim.DynamicLossScale(4.0), **options
        )
    return [np.array(one) for one in model.to("cpu").state_dict().values()]


def test_a_training_continues_from_another_machines_checkpoint(tmp_path):
    want = steps(4, tmp_path / "whole", "cpu", given)
    for devices in (("cpu", "cuda"), ("cuda", "cpu")):
        for count, device in zip((2, 4), devices, strict=True):
            with StandIn().present():
                got = steps(count, tmp_path / devices[0], device, given if device == "cpu" else standin.moved)
        assert_all_bits(got, want)


def updated_on_gpu(make, policy):
    """The results of updates on the stand-in, and the modules of the loops that it started."""
    gpu = Counting()
    with gpu.present():
        arrays = list(trainings.updated(make, policy, standin.moved))
    return [x if isinstance(x, np.ndarray) else x.get() for x in arrays], gpu.started


def test_an_update_on_a_gpu_is_one_launch_a_parameter_and_has_the_bits_of_the_cpu_and_of_single_operations(monkeypatch):
    for number, (name, make) in enumerate(trainings.UPDATES.items()):
        for place, policy in enumerate(trainings.UPDATE_POLICIES):
            arrays, started = updated_on_gpu(make, policy)
            # Two updates of two parameters, the first of which also rounds the weights.
            assert started.count("programs") == 4 and started[-2:] == ["programs"] * 2 and len(started) <= 6, name
            compare(arrays, list(trainings.updated(make, policy, given)))
            if (number - place) % 6 == 0:
                with monkeypatch.context() as context:
                    context.setattr(optimizers, "run_as_program", lambda *_: None)
                    singly, others = updated_on_gpu(make, policy)
                compare(arrays, singly)
                assert "programs" not in others


def test_updates_without_a_program_on_a_gpu_run_as_single_operations():
    long_draws = sf.Policy(compute=sf.FP32, rounding=sf.stochastic())
    scaled = sf.Policy(compute=sf.BF16, optimizer_state=sf.scaled(sf.E4M3, sf.block(4, sf.FP32)))
    for policy, observer in (("bf16-standard", sf.Recorder()), (long_draws, None), (scaled, None)):
        gpu = Counting()
        with gpu.present(), sf.simulate(policy, observer=observer):
            weight = sf.Parameter(standin.moved(trainings.WEIGHTS))
            weight.grad = standin.moved(trainings.GRADIENTS[0])
            trainings.UPDATES["AdamW"]([weight]).step()
        assert len(gpu.started) > 10 and "programs" not in gpu.started
