"""Experiments use public names of simfloat, and few others, each with a reason."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Names that no room offers, and why experiments or benchmarks need them.
EXCEPTIONS = {
    "simfloat.terminal.run_command": "the command line ends as simfloat's own does",
    "simfloat.common.did_you_mean": "the same, and names what is near",
    "simfloat.policy.policy.unknown": "the same, of presets",
    "simfloat.train.step.TrainingStep": "runs are looked at between steps, and keep what each step tells",
    "simfloat.telemetry.entries.Key": "which gradients of a recorder belong together is the experiment's own question",
    "simfloat.telemetry.entries.exponent_counts": "the same",
    "simfloat.telemetry.entries.count_zeros": "the same",
    "simfloat.telemetry.ranges.Histogram": "claims on the range of a format are tested on histograms",
    "simfloat.telemetry.ranges.count_in_range": "the same",
    "simfloat.telemetry.ranges.format_binades": "the same",
    "simfloat.policy.presets.AUTOCAST_NARROW": "an experiment asks what PyTorch's lists are good for",
    "simfloat.policy.presets.AUTOCAST_WIDE": "the same",
    "simfloat.policy.roles.ROLES": "a sweep has an axis for each role",
    "simfloat.policy.text.text_of": "the same, whose values are written as in policy files",
    "simfloat.policy.text.value_of": "the same",
    "simfloat.simulation.updates.COMPENSATION": "the memory of an optimizer's state is counted by what it holds",
    "simfloat.simulation.updates.STEP": "the same",
    "simfloat.terminal.reserve_line": "a command has a bar of its own, as trainings have",
    "simfloat.plots.figure.label_axes": "axes without curves of ours look like the others",
    "simfloat.plots.figure.project_style": "the same, also if they are drawn with matplotlib directly",
    "simfloat.plots.figure.foreground": "the same: lines of reference are visible in dark styles",
    "simfloat.plots.figure.GREY": "the same",
    "simfloat.plots.curves.make_logarithmic": "the same: ticks",
    "simfloat.plots.figure.add_title": "figures of several axes have one title that states the finding",
    "simfloat.plots.curves.plain_label": "the same, with labels of users in it",
    "simfloat.plots.curves.power_text": "the same, with small numbers in it",
    "simfloat.plots.formats.exponents_finding": "the same, for a histogram of exponents",
    "simfloat.plots.formats.percent_text": "the same",
    "simfloat.plots.trade_offs.front_finding": "the same, for a search",
    "simfloat.arithmetic.catalog.FUNCTIONS": "a benchmark of every function",
    "simfloat.arithmetic.programs.READINESS": "rates are those of programs, so their loop is compiled at once",
    "simfloat.arithmetic.machines.what_cuda_lacks": "benchmarks of a GPU say what is missing",
    "simfloat.analysis.reveal.MOST_TERMS": "a benchmark of a GPU takes as many terms as are looked at",
    "simfloat.tools.selftest.checks.DETERMINISTIC": "a long comparison of sums draws as the self-test does",
    "simfloat.tools.selftest.checks.hard_operands": "the same",
    "simfloat.tools.selftest.checks.equal_bits": "recorded bits are compared as the self-test does",
    "simfloat.formats": "strings that name a rounding mode are looked for, by the names of all modes",
    "simfloat.analysis.cost.value_bits": "bytes of moments in memory are computed as `cost` does",
    "simfloat.arithmetic.casts.as_cast": "bits of activations, with roles that are formats or casts",
    "simfloat.__main__.main": "circuits are checked by the command line",
    "simfloat.sums.units.NvidiaArchitecture": "the units of an architecture are listed",
}


def asked_for(folder):
    """The names of simfloat that a folder's files import, and where."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "simfloat":
                yield from ((f"{node.module}.{alias.name}", path.relative_to(ROOT)) for alias in node.names)


def is_public(name):
    """True if the name is in the `__all__` of simfloat or of a subpackage, or in a module of one with an `__all__`."""
    module, _, last = name.rpartition(".")
    if module.startswith("simfloat.studies"):
        return not last.startswith("_")
    return last in getattr(import_module(module), "__all__", ()) or name == "simfloat.kernels"


@pytest.mark.parametrize("folder", ["experiments", "benchmarks"])
def test_only_public_names_are_imported_and_those_that_are_named_here(folder):
    wrong = {f"{path}: {name}" for name, path in asked_for(folder) if name not in EXCEPTIONS and not is_public(name)}
    assert not wrong, "use the public way, or say here why there is none"


def test_every_exception_is_needed():
    used = {name for folder in ("experiments", "benchmarks") for name, _ in asked_for(folder)}
    assert EXCEPTIONS.keys() <= used
