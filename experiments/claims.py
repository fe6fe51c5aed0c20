"""The claims of the source documents and their verdicts: a page from `claims.toml` and the findings in the READMEs.

`claims.toml` names the findings that test a claim. Their verdicts are in the tables of the experiments' READMEs, which
tests compare with the stored results.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import frozen
from experiments.bfloat16_models.texts import next_characters
from experiments.catalog import EXPERIMENTS
from experiments.mixed_precision import MIXED
from experiments.models import GPT
from experiments.readme import Found, all_found
from simfloat.arithmetic.casts import as_cast
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED

#: The table of claims, and the page that is generated from it.
CLAIMS, PAGE = Path(__file__).parent / "claims.toml", Path(__file__).parents[1] / "docs" / "claims.md"

#: Results that were recorded on eight GPUs; the README beside them names their source.
RECORDED = Path(__file__).parents[1] / "tests" / "accumulate" / "recorded" / "tensor_cores.npz"

#: Matches tests without statistics: a counterexample was found, or all existing cases were tried.
EXACT = re.compile(r"counterexamples: [1-9]|cases, which are all")

#: Matches the expectations of findings about how well a model is trained.
TRAINED = re.compile(
    r"\bloss(?:es)? /|log loss|ratio of losses|perplexity|(?:points|percent) (?:below|above)|AUC with|mean within|^gap|"
    r"margin of each"
)

#: The verdict of a claim that no finding tests.
NOT_TESTED = "not tested"

#: The verdict on the opposite of a claim.
OPPOSITE = {REPRODUCED: NOT_REPRODUCED, NOT_REPRODUCED: REPRODUCED}

HEAD = """\
# Claims

This page lists claims from five papers and guides on mixed-precision training, and the result of testing each. A claim
has the verdict of the findings that test it ([rules](../experiments/README.md#verdicts)). If several findings test it,
the number in parentheses counts those with that verdict. Some of them share a model or runs, so they are not
independent. Models and data are small: see the last column, and the limits of each experiment. Our models cannot test a
claim about a specific model of the source. The verdict is then *not tested*, and the page also gives the verdict on our
model. `python -m experiments claims --page` writes this page from `experiments/claims.toml` and the findings of the
experiments.
"""


WRONG = """\
Each of these claims is refuted by a proof, a counterexample, arithmetic, or a document. The READMEs of the experiments
list further errors in their sources.
"""

CONTRADICTED = """\
All findings that test these claims contradict them. But each finding is about one model, and another model may behave
differently:
"""

RATES = """\
A verdict on trainings may depend on the learning rate. [tuned-rates](../experiments/tuned_rates/README.md) compares
each policy at its own best rate, on samples that did not choose it;
[fp4-factorial](../experiments/fp4_factorial/README.md) does so for FP32 and two formats. The experiments below do not
tune the rate for each policy, so their claims are *not tested at tuned rates*. A curve of six rates takes six times as
many trainings as the experiment itself.
"""

CHANGED = """\
[frozen.toml](../experiments/frozen.toml) has each claim with its margin and the date on which it was frozen. These
tests were changed later, and judge results that were already known:
"""


@dataclass(frozen=True)
class Claim:
    """A claim: its place in the document, its text, and the evidence that decides it."""

    source: str
    place: str
    says: str
    findings: tuple[str, ...] = ()  # as "experiment: pattern"
    contrary: bool = False  # the findings say the opposite
    choices: str = ""  # the free choices, and their effect on the verdict
    check: str = ""  # an expression that decides it by arithmetic, or by recorded results of hardware
    proven: str = ""  # the proof
    refuted: str = ""  # a counterexample, or the proof of the opposite
    elsewhere: str = ""  # why the findings, on another model, cannot decide a claim about the model of the source
    reason: str = ""  # why it is not tested


@cache
def read_claims() -> tuple[Mapping[str, str], tuple[Claim, ...]]:
    """Return the documents by their short names, and all claims."""
    table = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))
    rows = ({**row, "findings": tuple(row.get("findings", ()))} for row in table["claims"])
    return table["sources"], tuple(Claim(**row) for row in rows)


@cache
def rates() -> Mapping[str, str]:
    """Return, for each experiment without a tuned rate for each policy, a description of its choice of rates."""
    table: Mapping[str, str] = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["rates"]
    return table


def remark_on_rates(claim: Claim) -> str:
    """Return which experiments test the claim by trainings at rates that were not tuned for each policy, or ""."""
    names = dict.fromkeys(
        found.experiment
        for found in speaking_to(claim)
        if found.experiment in rates() and TRAINED.search(found.expectation)
    )
    return f"Not tested at tuned rates: {', '.join(names)}." if names else ""


def speaking_to(claim: Claim) -> list[Found]:
    """Return the findings that test the claim. Raises ValueError if no finding matches a pattern."""
    found = []
    for pattern in claim.findings:
        matching = [each for each in all_found() if fnmatchcase(f"{each.experiment}: {each.claim}", pattern)]
        if not matching:
            raise ValueError(f"No finding of any README matches {pattern!r}, which claims.toml names.")
        found += matching
    return found


def recorded(name: str) -> NDArray[np.float64]:
    """Return an array of the results that were recorded on GPUs, such as "V100_fp16_d_fp32"."""
    with np.load(RECORDED) as arrays:
        return arrays[name].view(np.float32).astype(np.float64)


class Memory(NamedTuple):
    """The bits of a training step: those of all parameters and their state, of FP16 copies, and of activations."""

    state: float
    copies: float
    activations: float

    @property
    def total(self) -> float:
        """All bits."""
        return self.state + self.activations


@cache
def memory(name: str) -> Memory:
    """Return the bits that sf.cost counts for the GPT of real-size under FP32 or mixed precision."""
    model, tokens = GPT(64, 24, 32, layers=1, heads=2, seed=0), np.zeros((8, 24), np.int64)
    counted = sf.cost(model, next_characters, (tokens, tokens), {"fp32": sf.policies["fp32"], "mixed": MIXED}[name])
    return Memory(
        sum(each.elements * each.bits for each in counted.state),
        sum(each.elements * each.copy for each in counted.state),
        sum(each.amount * as_cast(each.value).format.bits for each in counted.numbers if each.role == "activations"),
    )


def verdicts(claim: Claim) -> str:
    """Return the verdict, or each verdict with the number of findings that have it."""
    if claim.reason:
        return NOT_TESTED
    if claim.proven or claim.refuted:
        return REPRODUCED if claim.proven else NOT_REPRODUCED
    if claim.check:
        return (
            REPRODUCED
            if eval(claim.check, {"sf": sf, "np": np, "recorded": recorded, "memory": memory})
            else NOT_REPRODUCED
        )
    words = _words(claim)
    counts = Counter(words)
    text = ", ".join(f"{word} ({count})" for word, count in counts.most_common())
    if claim.elsewhere:
        return f"{NOT_TESTED}; here {text}"
    return next(iter(counts)) if len(words) == 1 else text


def _words(claim: Claim) -> list[str]:
    """Return the verdict that each finding gives on the claim."""
    words = [row.verdict.partition(" (")[0] for row in speaking_to(claim)]
    return [OPPOSITE.get(word, word) if claim.contrary else word for word in words]


def is_contradicted(claim: Claim) -> bool:
    """Return True if the claim is refuted, or if every finding that tests it contradicts it."""
    if claim.findings and not claim.elsewhere:
        return set(_words(claim)) == {NOT_REPRODUCED}
    return verdicts(claim) == NOT_REPRODUCED


def is_refuted(claim: Claim) -> bool:
    """Return True if the claim is refuted without statistics."""
    return is_contradicted(claim) and all(EXACT.search(row.test) for row in speaking_to(claim))


def samples(claim: Claim) -> str:
    """Return the experiments that decided, each with its number of cases."""
    if claim.check:
        return "by recorded results" if "recorded" in claim.check else "by arithmetic"
    if claim.proven or claim.refuted:
        return "by proof" if claim.proven else "by proof or counterexample"
    by_experiment: dict[str, list[int]] = {}
    for found in speaking_to(claim):
        by_experiment.setdefault(found.experiment, []).append(found.cases)
    return ", ".join(
        f"[{name}](../experiments/{name.replace('-', '_')}/README.md) {_span(cases)}"
        for name, cases in by_experiment.items()
    )


def _span(cases: list[int]) -> str:
    low, high = min(cases), max(cases)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def listed() -> str:
    """Return a line for each claim: its verdict, its document and its text."""
    return "\n".join(f"{verdicts(claim):<36} {claim.source:<9} {claim.says}" for claim in read_claims()[1])


def page() -> str:
    """Return the text of the page of all claims."""
    sources, claims = read_claims()
    untested, elsewhere = (sum(bool(getattr(claim, name)) for claim in claims) for name in ("reason", "elsewhere"))
    summary = (
        f"{len(claims)} claims: {len(claims) - untested - elsewhere} have a verdict, {untested} have a reason why they "
    )
    summary += (
        f"are not tested. {elsewhere} are about a model of the source that we do not have. For these, the verdict "
    )
    parts = [HEAD, summary + "on our model follows the word *here*."]
    for name, title in sources.items():
        parts.append(f"\n## {title}\n")
        parts.append(
            "| place | claim | verdict | experiment, cases | effect of free choices, proof, or why not tested |"
        )
        parts.append("|---|---|---|---|---|")
        for claim in claims:
            if claim.source == name:
                remarks = (
                    claim.elsewhere,
                    claim.choices,
                    remark_on_rates(claim),
                    claim.proven,
                    claim.refuted,
                    claim.reason,
                )
                cells = (claim.place, claim.says, verdicts(claim), samples(claim), " ".join(filter(None, remarks)))
                parts.append("| " + " | ".join(cell.replace("|", r"\|").replace("*", r"\*") for cell in cells) + " |")
    spoken = {found.experiment for claim in claims for found in speaking_to(claim)}
    parts += ["\n## Beyond these documents\n", "| experiment | question | verdicts |", "|---|---|---|"]
    for name, experiment in EXPERIMENTS.items():
        if name not in spoken:
            counts = Counter(found.verdict.partition(" (")[0] for found in all_found() if found.experiment == name)
            if not counts:
                continue
            words = ", ".join(f"{word} ({count})" for word, count in counts.most_common())
            link = f"[{name}](../experiments/{name.replace('-', '_')}/README.md)"
            parts.append(f"| {link} | {experiment.question} | {words} |")
    parts += ["\n## Learning rates\n", RATES, "| experiment | learning rate |", "|---|---|"]
    parts += [
        f"| [{name}](../experiments/{name.replace('-', '_')}/README.md) | {how} |" for name, how in rates().items()
    ]
    wrong = [claim for claim in claims if is_contradicted(claim)]
    lists = ((WRONG, filter(is_refuted, wrong)), (CONTRADICTED, (claim for claim in wrong if not is_refuted(claim))))
    parts.append("\n## Errors in the sources")
    for head, rows in lists:
        parts += [f"\n{head}", *(f"* {claim.says} ({claim.source}, {claim.place})." for claim in rows)]
    parts += ["\n## Tests that changed after results were known\n", CHANGED, frozen.changes()]
    return "\n".join(parts) + "\n"
