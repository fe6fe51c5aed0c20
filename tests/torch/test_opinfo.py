"""PyTorch's own list of operations, a small part of it: none is wrong, and none ends in an error of Python."""

import pytest

pytest.importorskip("expecttest", reason="PyTorch's list of its operations needs it")

from benchmarks.opinfo import entries, judged, title_of  # noqa: E402

#: Every so many-th operation is judged; `python -m benchmarks.opinfo` judges all.
STEP = 25


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", ["fp32", "fp64"])
def test_operations_are_right_or_refused_by_name(policy):
    found = {title_of(entry): judged(entry, policy, 2, 5.0) for entry in entries(())[::STEP]}
    assert {name: verdict for name, verdict in found.items() if verdict.word not in ("right", "refused")} == {}
    assert sum(verdict.word == "right" for verdict in found.values()) > len(found) / 2
