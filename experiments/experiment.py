"""An experiment: independent jobs, findings from their results, and the axes of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from experiments.grid import Grid
from experiments.measurement import against_fp32, metric_rows, refuse_policy, select
from experiments.options import Options
from experiments.training import check_policy
from experiments.training_grid import training_grid
from simfloat.policy import Policy
from simfloat.studies import Finding, Job, Result

#: The files of an experiment that are read in addition to its package; one file may contain everything.
FILES = ("problems", "jobs", "findings", "figures")

#: The default number of seeds that decide the claims of an experiment.
SEEDS = 5


#: A function that draws results into the file of that path.
Draw = Callable[[list[Result], Path], None]


class Picture(NamedTuple):
    """A figure: its file, the function that draws it, and the results that it needs; without them it is not drawn."""

    name: str
    draw: Draw
    fields: Mapping[str, object]
    given: bool = True  # True if it is also drawn under a policy of the user


def drawn_as(name: str, *, given: bool = True, **fields: object) -> Callable[[Draw], Draw]:
    """Make a function a figure of its experiment: it draws the results with these fields into the file of that name."""

    def decorated(draw: Draw) -> Draw:
        draw.__dict__.setdefault("pictures", []).append(Picture(name, draw, fields, given))
        return draw

    return decorated


@dataclass(frozen=True)
class Experiment:
    """A question with its method: `jobs` run in any order; findings and figures come from their results.

    `run` is a function of a module, so that another process finds it by its name. A result depends only on its job.
    Results are passed on in the order of the jobs.
    """

    name: str
    question: str
    jobs: Callable[[Options], list[Job]]
    run: Callable[[Job], Result]
    findings: Callable[[list[Result]], list[Finding]]
    figures: tuple[Picture, ...] = ()
    metrics: Callable[[Result], list[dict[str, Any]]] = metric_rows  # rows of metrics.jsonl
    check: Callable[[Policy], None] = refuse_policy  # raises ValueError if a job cannot run under the user's policy
    seeds: int = SEEDS  # the number of seeds that decide in a full run
    grid: Grid | None = None  # the axes of a sweep

    @classmethod
    def of(cls, package: str) -> Experiment:
        """Return the experiment of a package, such as "experiments.detection", from the names that its files define.

        The docstring of the package is the question. The package has `jobs` and `run`. Its claims and figures are
        marked by `claim` and `drawn_as`, in the order of their definition. It may have PROBLEMS, on which it trains,
        SEEDS, `findings`, `metrics` and `check`. Raises ValueError if `jobs` or `run` is missing.
        """
        modules = [
            import_module(name) for name in (package, *(f"{package}.{file}" for file in FILES)) if find_spec(name)
        ]
        found = [
            (name, value)
            for module in modules
            for name, value in vars(module).items()
            if not isinstance(value, ModuleType)
        ]
        known = dict(found)
        if missing := [name for name in ("jobs", "run") if name not in known]:
            raise ValueError(
                f"{package} defines no {' and no '.join(missing)}; experiments/README.md says what they are."
            )
        problems = known.get("PROBLEMS")
        claims = dict.fromkeys(value for _, value in found if getattr(value, "is_claim", False))
        drawn = dict.fromkeys(value for _, value in found if getattr(value, "pictures", None))
        optional: dict[str, Any] = {name: known[name] for name in ("findings", "metrics", "check") if name in known}
        trained: dict[str, Any] = (
            {"check": partial(check_policy, problems), "grid": training_grid(problems)} if problems else {}
        )
        findings = partial(all_findings, tuple(claims), tuple(problems or ()))
        return cls(
            name=package.rpartition(".")[2].replace("_", "-"),
            question=str(modules[0].__doc__).strip().split("\n")[0],
            jobs=known["jobs"],
            run=known["run"],
            figures=tuple(picture for draw in drawn for picture in draw.pictures),
            seeds=known.get("SEEDS", SEEDS),
            **{"findings": findings, **trained, **optional},
        )

    def drawings(self, results: list[Result]) -> dict[str, Callable[[Path], None]]:
        """Return the function that draws each figure of these results, by the name of its file."""
        given = bool(select(results, variant="given"))
        chosen = [(each, select(results, **each.fields)) for each in self.figures if each.given or not given]
        return {each.name: partial(_draw_in_style, each.draw, runs) for each, runs in chosen if runs}


def _draw_in_style(draw: Draw, results: list[Result], path: Path) -> None:
    """Draw a figure with the style of simfloat, in what it draws by matplotlib directly too."""
    from simfloat.plots.figure import project_style

    with project_style():
        draw(results, path)


def all_findings(
    claims: tuple[Callable[[list[Result]], Finding], ...], problems: tuple[str, ...], results: list[Result]
) -> list[Finding]:
    """Return the findings of all claims; for a policy of the user, whether it comes close to fp32."""
    return against_fp32(results, problems) or [claim(results) for claim in claims]
