"""Public names exist, also for type checkers; other names raise an error."""

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


def test_the_package_as_a_namespace_has_every_name():
    code = "import simfloat as sf; print(eval('Policy(compute=FP16, accumulate=kahan(FP16))', vars(sf)).accumulate)"
    assert python(code).stdout == "kahan(FP16)\n"
    assert python("from simfloat import *; print(round(1.1, BF16))").stdout == "1.1015625\n"


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


#: Imports the package anew for each name.
FIRST_USE = """
import sys
for name in sys.argv[1:]:
    for module in [module for module in sys.modules if module.partition(".")[0] == "simfloat"]:
        del sys.modules[module]
    import simfloat
    print(name, "simfloat.telemetry" in sys.modules, getattr(simfloat, name) is not None)
"""


def test_optional_parts_are_imported_at_their_first_use():
    names = ["nn", "optim", "plots", "telemetry", "train", "Tensor", "Recorder", "load", "save"]
    done = python(FIRST_USE, *names)
    assert done.stdout.splitlines() == [f"{name} False True" for name in names], done.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'simfloat' has no attribute 'FP61'"):
        sf.FP61  # noqa: B018


def test_a_mistyped_name_is_answered_with_the_nearest():
    assert "Did you mean: 'FP16'?" in python("import simfloat as sf; sf.FP166").stderr


def test_a_type_checker_accepts_every_name_and_no_other(tmp_path):
    snippet = tmp_path / "snippet.py"
    snippet.write_text(
        "import simfloat as sf\n"
        "from simfloat import exp\n"
        "reveal_type(exp)\n"
        "reveal_type(sf.fma)\n"
        "reveal_type(sf.BF16)\n"
        "reveal_type(sf.Recorder())\n"
        "reveal_type(sf.nn.Linear(1, 1))\n"
        "reveal_type(sf.plots.Curve)\n"
        "reveal_type(sf.Tensor(1.0).sum())\n"
        "reveal_type((sf.Parameter([1.0]) @ [1.0]).exp())\n"
        "reveal_type(sf.nn.Linear(1, 1)([1.0]))\n"
        "reveal_type(sf.nn.LSTM(1, 1)([[1.0]])[0])\n"
        "reveal_type(sf.nn.ELU(alpha=0.5).alpha)\n"
        "reveal_type(sf.optim.AdamW([], 0.1, betas=(0.5, 0.5)).betas)\n"
        "sf.FP61\n"
        "sf.optim.Adagard\n"
        "sf.tensor_core('hoper')\n"
        "sf.matrix_core('cdna4', sf.FP16)\n"
        "sf.nn.ELU(alpha='a')\n"
        "sf.optim.SGD([], 0.1, 0.9)\n"
        "sf.optim.StepLR(sf.optim.SGD([]))\n"
    )
    command = [sys.executable, "-m", "mypy", str(snippet)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    lines = [line.split(": ", 2)[1:] for line in done.stdout.splitlines()[:-1] if '" defined in "' not in line]
    assert [kind for kind, _ in lines] == ["note"] * 12 + ["error"] * 7, done.stdout
    assert not any('"Any"' in text for _, text in lines)
    assert all('.Tensor"' in text for _, text in lines[6:10]), "calls of modules return what forward does"
    assert '"float"' in lines[10][1] and '"tuple[float, float]"' in lines[11][1], "options as attributes"
    assert 'has no attribute "FP61"' in lines[12][1] and 'has no attribute "Adagard"' in lines[13][1]
    assert "Literal['volta', " in lines[14][1] and "Literal['cdna1', " in lines[15][1]
    assert 'expected "float"' in lines[16][1] and "Too many positional" in lines[17][1], "constructors of options"
    assert '"step_size"' in lines[18][1]


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
