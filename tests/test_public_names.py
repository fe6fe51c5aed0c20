"""Public names exist; other names raise an error."""

import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import simfloat as sf
from simfloat.sums import units

ROOT = Path(__file__).parents[1]


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100
    )


def test_every_public_name_is_there():
    assert [name for name in sf.__all__ if not hasattr(sf, name)] == []


def test_every_public_function_and_class_can_be_sent_to_another_process():
    public = [getattr(sf, name) for name in sf.__all__]
    values = [value for value in public if inspect.isclass(value) or inspect.isfunction(value)]
    assert all(pickle.loads(pickle.dumps(value)) is value for value in values)


def test_types_name_the_architectures_that_there_are():
    assert get_args(units.NvidiaArchitecture) == tuple(units.NVIDIA_UNITS)
    assert get_args(units.AmdArchitecture) == tuple(units.AMD_UNITS)


def test_completion_offers_what_is_ours():
    offered = [name for name in dir(sf) if not name.startswith("__")]
    assert offered == sorted(sf.__all__)


INNER = ("analysis", "kernels", "tools")


@pytest.mark.parametrize("room", [m.name for m in pkgutil.iter_modules(sf.__path__) if m.ispkg and m.name not in INNER])
def test_a_package_has_its_public_names_and_completion_offers_no_others(room):
    package = importlib.import_module(f"simfloat.{room}")
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert {name for name in dir(package) if not name.startswith("_")} <= modules.union(package.__all__)


#: Uses each name in a process of its own, which has imported the package only; then imports all names.
FIRST_USE = """
import os, sys
import numba  # once for all processes
import simfloat as sf
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        print(name, "simfloat.telemetry" in sys.modules, getattr(sf, name) is not None, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(eval("Policy(compute=FP16, accumulate=kahan(FP16))", vars(sf)).accumulate)
from simfloat import *
print(round(1.1, BF16), flush=True)
sf.FP166
"""


def test_a_new_process_imports_names_at_their_first_use_and_answers_a_mistyped_one_with_the_nearest():
    names = ["nn", "optim", "plots", "telemetry", "train", "Tensor", "Recorder", "load", "save"]
    done = python(FIRST_USE, *names)
    want = [*(f"{name} False True" for name in names), "kahan(FP16)", "1.1015625"]
    assert done.stdout.splitlines() == want, done.stderr
    assert "Did you mean: 'FP16'?" in done.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'simfloat' has no attribute 'FP61'"):
        sf.FP61  # noqa: B018


@pytest.mark.parametrize("room, name, hint", [
    ("nn", "functional", "losses are functions of simfloat.nn, and other operations methods of tensors"),
    ("nn", "utils", "clip_grad_norm_ and clip_grad_value_ are functions of simfloat.optim"),
    ("optim", "GradScaler", "it is simfloat.optim.DynamicLossScale"),
    ("optim", "lr_scheduler", "schedules are names of simfloat.optim itself"),
    ("nn", "SiLu", "no attribute 'SiLu'$"),
])  # fmt: skip
def test_other_names_in_pytorch_are_reported(room, name, hint):
    with pytest.raises(AttributeError, match=hint) as caught:
        getattr(getattr(sf, room), name)
    assert caught.value.name == name and caught.value.obj is getattr(sf, room), "Python adds the nearest name"
