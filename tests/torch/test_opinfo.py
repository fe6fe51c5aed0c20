"""A small part of PyTorch's own list of operations: none is wrong, and none ends in an internal error."""

from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

pytest.importorskip("expecttest", reason="PyTorch's lists need it")

from benchmarks import models, moduleinfo, opinfo, workflows  # noqa: E402
from benchmarks.opinfo import entries, judged, title_of  # noqa: E402
from benchmarks.verdicts import compared  # noqa: E402

#: Every so many-th operation is judged; `python -m benchmarks.opinfo` judges all.
STEP = 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", ["fp32", "fp64"])
def test_operations_are_right_or_refused_by_name(policy):
    found = {title_of(entry): judged(entry, policy, 2, 5.0) for entry in entries(())[(policy == "fp64") * 20 :: STEP]}
    assert {name: verdict for name, verdict in found.items() if verdict.word not in ("right", "refused")} == {}
    assert sum(verdict.word == "right" for verdict in found.values()) > len(found) / 2


@pytest.mark.filterwarnings("ignore")
def test_modules_are_right():
    found = {entry.name: moduleinfo.judged(entry, "fp32", 1, 5.0) for entry in moduleinfo.entries(())[::6]}
    assert {name: verdict for name, verdict in found.items() if verdict.word != "right"} == {}


def word(mine, operations, due=None):
    due = torch.tensor([0.1, 3.0]) if due is None else due
    sample = SimpleNamespace(input=torch.ones(2), args=(), kwargs={})
    return compared([mine], [due], [due.double()], sample, "fp32", operations).word


def test_wrong_results_are_recognised():
    due = torch.tensor([0.1, 3.0])
    near, far = torch.nextafter(due, 2 * due), due * (1 + 2.0**-16)
    assert word(due, {"aten.add.Tensor"}) == word(near, {"aten.exp.default"}) == "right"
    assert word(near, {"aten.add.Tensor"}) == word(near, set()) == "wrong", "bits"
    assert word(far, {"aten.exp.default"}) == word(due.double(), {"aten.exp.default"}) == "wrong"
    assert word(torch.zeros(1), set(), -torch.zeros(1)) == "wrong", "the sign of a zero"


def test_a_policy_or_a_name_that_does_not_exist_is_refused_in_one_line():
    for command, *options in ((workflows,), (models, "--policy"), (models,), (opinfo,), (moduleinfo,)):
        done = CliRunner().invoke(command.main, [*options, "fp31"])
        assert done.exit_code == 2 and "'fp31'" in done.output.splitlines()[-1] and "Traceback" not in done.output
