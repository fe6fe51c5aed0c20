"""The facts of a release are the same in all files."""

import re
import tomllib
from pathlib import Path

import simfloat as sf

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_one():
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)[1]
    changelog = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert {PROJECT["version"], citation, changelog} == {sf.__version__}


def test_the_oldest_python_is_the_first_that_is_classified():
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert sorted(versions, key=lambda version: int(version[2:])) == versions


def test_a_first_version_is_stable_only_when_it_is_said_so():
    is_stable = "Development Status :: 5 - Production/Stable" in PROJECT["classifiers"]
    assert is_stable == (int(sf.__version__.partition(".")[0]) >= 1)


def test_no_two_files_differ_by_case_alone():
    names = [path.relative_to(ROOT).as_posix().lower() for path in (ROOT / "simfloat").rglob("*")]
    assert len(names) == len(set(names))


def test_every_system_takes_the_names_of_files():
    paths = [*ROOT.iterdir(), *(ROOT / "simfloat").rglob("*")]
    assert [path.name for path in paths if re.search(r'[<>:"|?*\\]', path.name)] == []


def test_the_subpackages_that_are_said_to_be_stable_have_lists_of_names():
    page = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
    packages = re.findall(r"`(\w+)`", re.search(r"of its subpackages \(([^)]*)\)", page)[1])
    assert len(packages) > 5 and all(getattr(sf, package).__all__ for package in packages)
