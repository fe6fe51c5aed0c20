"""No command line and no policy file causes a traceback."""

import os
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import simfloat as sf
from experiments.catalog import EXPERIMENTS
from experiments.command_line import main
from experiments.training import check_policy
from experiments.update_cancellation.problems import synthetic
from simfloat.studies import one_by_one
from tests.experiments.toy import toy

WORDS = [
    "list", "run", "toy", "--tiny", "--seeds", "1", "--policy", "bf16-kahan", "--out", "--help", "policy.toml", "new",
]  # fmt: skip
TEXT = st.text(max_size=8)
ARGUMENTS = st.lists(st.sampled_from(WORDS) | TEXT, max_size=7).map(lambda words: ["run", "toy", *words]) | st.lists(
    st.sampled_from(WORDS) | TEXT, max_size=7
)
KEYS = st.sampled_from(["compute", "weights", "accumulate", "update", "rounding", "name", "overrides", "path", "x"])
SCALARS = st.sampled_from(
    ["5", "true", "1e400", "nan", "'bf16'", "'sequential(BF16)'", "'fp99'", "''", "'$x$'", "1979-05-27", "[]", "{}"]
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3).map(lambda items: f"[{', '.join(items)}]")
LINES = st.tuples(KEYS, VALUES).map(" = ".join) | st.just("[[overrides]]") | st.text(max_size=12)


def invoke(arguments):
    """The exit code, in an empty folder; an exception other than an exit is handed on."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "toy", toy())
        os.chdir(folder)
        try:
            result = CliRunner(catch_exceptions=False).invoke(main, arguments, obj=one_by_one)
        finally:
            os.chdir(before)
    assert "Traceback" not in result.output
    return result.exit_code


@settings(deadline=None, max_examples=60)
@given(ARGUMENTS)
@example(["run", "toy", "--out", "\0"])
@example(["run", "toy", "--out", "a" * 5000])
@example(["run", "toy", "--policy", "\udcff.toml"])
@example(["run", "toy", "--seeds", "9" * 5000])
def test_command_lines_exit_with_0_1_or_2(arguments):
    assert invoke(arguments) in (0, 1, 2)


@settings(deadline=None, max_examples=60)
@given(st.lists(LINES, max_size=6).map("\n".join))
@example("a = " + "[" * 50_000)
@example("compute = 'bf16'\noverrides = 5")
@example("compute = 'bf16'\noverrides = [5]")
@example("compute = 'bf16'\nname = ['a']")
@example("compute = 'bf16'\nname = '\U0001f600'")
def test_policy_files_exit_with_0_or_2(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "policy.toml")
        path.write_text(text, encoding="utf-8", errors="replace")
        assert invoke(["run", "toy", "--tiny", "--policy", str(path)]) in (0, 2)


ROLES = st.sampled_from([sf.BF16, sf.FP16, sf.E4M3, sf.E2M1, sf.FP32, sf.FP64, sf.E8M0, sf.Format(8, 40)])
SUMS = ROLES | st.sampled_from([sf.exact, sf.kahan(sf.FP16), sf.pairwise(sf.BF16), sf.tensor_core("hopper", sf.E4M3)])


@settings(deadline=None, max_examples=12)
@given(ROLES, ROLES, ROLES, SUMS, st.sampled_from(["nearest", "stochastic", "kahan"]))
def test_a_policy_fits_a_problem_or_is_refused(compute, weights, activations, accumulate, update):
    try:
        policy = sf.Policy(
            compute=compute, weights=weights, activations=activations, accumulate=accumulate, update=update
        )
    except ValueError:
        return
    try:
        check_policy({"synthetic": synthetic}, policy)
    except ValueError as error:
        assert "does not fit the problem synthetic" in str(error)
