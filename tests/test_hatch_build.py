"""The build hook: compiled kernels in a wheel, if requested; the wheel is then for one Python and system."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HOOK = "hatchling.builders.hooks.plugin.interface"


@pytest.fixture
def build(monkeypatch):
    """Carries the hook out as hatchling does; what it asks for."""
    interface = ModuleType(HOOK)
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, HOOK, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", Path(__file__).parents[1] / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def carried_out(folder):
        monkeypatch.setenv("SIMFLOAT_KERNELS", str(folder))
        data = {"force_include": {}, "pure_python": True, "infer_tag": False}
        module.CompiledKernels().initialize("standard", data)
        return data

    return carried_out


def test_a_wheel_has_the_kernels_that_it_is_given_and_fits_one_system(build, tmp_path):
    (tmp_path / "simfloat").mkdir()
    for name in ("a-1.kernel", "b-1.ptx.kernel", "b-1.kernel.draft"):
        (tmp_path / "simfloat" / name).touch()
    places = {f"{tmp_path}/simfloat/{name}": f"simfloat/compiled/{name}" for name in ("a-1.kernel", "b-1.ptx.kernel")}
    assert build(tmp_path) == {"force_include": places, "pure_python": False, "infer_tag": True}


def test_without_kernels_a_wheel_fits_every_system_and_an_empty_folder_is_refused(build, tmp_path):
    assert build("") == {"force_include": {}, "pure_python": True, "infer_tag": False}
    with pytest.raises(ValueError, match="has no compiled kernels. Make some by `simfloat warmup --into"):
        build(tmp_path)
