"""The search for the cheapest policy with a loss close to that of the reference, and the files in its folder.

The search first changes all parts at once, and then each part alone, in the order in which combinations need them. It
assumes that the errors e of single parts combine as (sum of e^p)^(1/p). At first p is large: the combined error is
hardly more than the largest one. If combinations turn out worse than that, p decreases, down to 1, the sum.

The cheapest combination that is predicted to be within the share is trained. If it fails, it is excluded, together with
all narrower combinations. If even the sum predicted too little, the missing error is added to its parts. At the end,
single parts are made cheaper as long as the loss remains within the share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

from simfloat.common import message_text
from simfloat.formats.catalog import BF16, E4M3, E5M2, FP16, FP64
from simfloat.plots import front, save_figure
from simfloat.policy import Policy
from simfloat.policy.policy import as_policy
from simfloat.studies.report import SEARCH, SEARCH_POINTS, function_name, home_module
from simfloat.studies.search_parts import (
    REFERENCE,
    Confirmation,
    Search,
    SearchOption,
    SearchPart,
    SearchPoint,
    checked_cost,
    checked_parts,
    default_cost,
    part_options,
    parts_of_places,
    with_explicit_roles,
)
from simfloat.studies.statistics import Choice, cheapest_choices, combined_error, error_power, is_narrower
from simfloat.studies.stored import as_json, write_csv
from simfloat.studies.trials import PairedTrials, Train, Trainings, Trial
from simfloat.studies.verdicts import exponential
from simfloat.studies.workspace import Workspace, code_digest, versions

POLICY, FRONT = "policy.toml", ("front.png", "front.pdf")

SEARCH_FILES = (SEARCH_POINTS, POLICY, *FRONT, SEARCH)


def write_search(search: Search, train: Any, workspace: Workspace) -> None:
    """Write the points, the winning policy, the front if matplotlib is installed, and the summary."""
    rows = [{key: value for key, value in point._asdict().items() if key != "policy"} for point in search.points]
    workspace.write(SEARCH_POINTS, partial(write_csv, rows))
    workspace.write(POLICY, lambda path: path.write_text(search.policy.to_toml(), encoding="utf-8"))
    if find_spec("matplotlib") is not None:
        for name in FRONT:
            workspace.write(name, partial(_draw_front, search))
    text = as_json(summary(search, train), indent=1) + "\n"
    workspace.write(SEARCH, lambda path: path.write_text(text, encoding="utf-8"))


def summary(search: Search, train: Any) -> dict[str, Any]:
    """Summarize the question, the configuration and the answer of a search."""
    share = f"{100 * search.within:g} % of {search.reference}'s"
    return {
        "experiment": function_name(train),
        "question": f"Which policy is the cheapest whose loss is within {share}?",
        "config": {
            "within": search.within,
            "reference": search.reference,
            "answer": search.label,
            "cost": search.cost,
            "confirmed": search.answer,
            "policy": search.policy.to_dict(),
        },
        "versions": versions(),
        "code": code_digest(home_module(train)),
    }


def _draw_front(search: Search, path: Path) -> None:
    save_figure(front(search), path)


#: The initial power by which errors are combined: the result is little more than the largest error.
MOST_POWER = 8.0

#: Sums that exceed the limit only in their last bits count as within it.
SUM_SLACK = 1e-9

#: The budget of trainings suffices for at least this number of combinations with all seeds.
LEAST_COMBINATIONS = 20

#: A combination is trained only if its predicted error is at most this multiple of the allowed error.
WORTHWHILE_ERROR = 2.0


def search(
    train: Train,
    *,
    reference: Policy | str = "fp32",
    within: float = 0.01,
    start: Policy | str | None = None,
    formats: Sequence[Any] | Mapping[str, Any] = (E4M3, E5M2, BF16, FP16),
    parts: Iterable[Any] | None = None,
    cost: Callable[[Policy], float] | None = None,
    seeds: Iterable[int] = range(5),
    folder: str | Path | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Search:
    """Find the cheapest policy under which the loss of ``train(policy, seed)`` is close to that of a reference.

    Losses are compared seed by seed. Trainings stop after one seed if the loss is far from the reference, and after two
    if their interval decides. Otherwise all `seeds` are used. If one training under a policy diverges, the policy
    is never the answer, however many other seeds succeed: a divergence is outside of `within`, as it is outside of
    every margin in `simfloat.studies.compare`. The policy is not trained with further seeds, and policies that are
    narrower in every part are skipped. To compare how often policies diverge, sweep them over many seeds and pass the
    table to `simfloat.studies.compare`.

    The winner is confirmed on fresh seeds: the integers after the largest of `seeds`, as many as in `seeds`, or two or
    four times as many if needed. The upper end of the 95 % interval of its loss ratio must be below 1 + `within`. The
    level applies jointly to all policies that are confirmed in this way. If a policy is not confirmed, the next
    cheapest one is tried; in the end, or after a tenth of all trainings, the answer is the reference. If losses vary by
    chance by about `within`, only more seeds or a smoother loss help. A cheaper combination may exist, because only few
    are trained. In tests the search found the cheapest one, for errors of parts that add up, that multiply, and of
    which only the largest counts.

    A `folder` stores finished trainings, so the same call after kill -9 gives the same answer. A training is reused
    only for the same code and state, as in `simfloat.studies.sweep`. The call also writes search.csv, search.json and
    policy.toml there, and the Pareto front as PNG and PDF if matplotlib is installed. `simfloat.plots.front` draws the
    front.

    Parameters:
        train: a function that makes one complete training under `policy`, with all random values drawn from `seed`, and
            returns its loss, a positive number; NaN or infinity if it diverged. If it raises ValueError, the policy is
            impossible for this training.
        reference: the policy with which losses are compared.
        within: the allowed share of additional loss, a number above 0.
        start: the policy that is changed; by default the reference.
        formats: the formats to try, a list, or a dictionary by labels; also casts and accumulators, for roles that
            accept them.
        parts: a list of the parts of the policy that change separately. A part is a role for the whole model
            (``"weights"``), a layer by path or pattern (``"hidden.*"``, which means the operands of its products), or a
            pair of a path and one or several roles that change together (``("head", ("compute", "accumulate"))``). None
            means the operands of every layer with products, and the roles ``activations``, ``weights`` and
            ``optimizer_state`` of the whole model. Layers are found in the first training under the reference.
        cost: a function of a policy, such as ``lambda policy: work.cost(policy).bits_moved`` with `work` from
            `simfloat.count_work`; by default the sum, over all parts, of the bits of one element.
        seeds: two or more different integers from 0.
        folder: a folder for finished trainings and results; None for no folder.
        workers: the number of processes; None to train in this process.
        scheduler: the address of a Dask scheduler, instead of `workers`.

    Returns:
        A `Search` with the winning policy, its confirmation, and all points that were tried.

    Raises:
        ValueError: if the reference does not train; if a loss is not positive; if `start` is not within the share; if
            parts, formats or seeds are invalid; if no format is cheaper.

    Examples:
        >>> def train(policy, seed):
        ...     recipe = policy.recipe()
        ...     lost = 0.3 * (recipe.weights.precision < 8) + 0.001 * (recipe.activations.precision < 24)
        ...     return (1 + lost) * (1 + seed / 10)
        >>> found = sf.search(train, parts=["activations", "weights"])
        >>> found.label, found.cost, found.reference_cost
        ('activations=E4M3, weights=BF16', 24.0, 64.0)
        >>> round(found.confirmation.ratio, 4), found.confirmation.seeds
        (1.001, (5, 6, 7, 8, 9))
    """
    _check_arguments(train, within, formats)
    base = as_policy(reference, "search")
    begin = base if start is None else as_policy(start, "search")
    seed_list = _checked_seeds(seeds)
    with Trainings(train, folder, workers, scheduler, SEARCH_FILES) as trainings:
        paired_trials = PairedTrials(trainings, base, within, seed_list)
        places = trainings.watch((base, seed_list[0])) if parts is None else ()
        paired_trials.check_reference()
        chosen = parts_of_places(places) if parts is None else checked_parts(parts)
        price = default_cost(chosen) if cost is None else checked_cost(cost)
        options = part_options(chosen, with_explicit_roles(begin, chosen), formats, price)
        result = PolicySearch(paired_trials, begin, chosen, options, price).run()
        if trainings.workspace is not None:
            write_search(result, train, trainings.workspace)
    return result


class PolicySearch:
    """The state of a search: the combinations that were tried, and the conclusions from them."""

    def __init__(
        self,
        paired_trials: PairedTrials,
        start: Policy,
        parts: list[SearchPart],
        options: list[list[SearchOption]],
        price: Callable[[Policy], float],
    ) -> None:
        self.paired_trials, self.start, self.parts, self.options, self.price = (
            paired_trials,
            start,
            parts,
            options,
            price,
        )
        self.trials: dict[Choice, Trial] = {}
        self.excluded: set[Choice] = set()  # choices that failed; everything narrower than one of them is skipped
        self.error_power = MOST_POWER  # the power by which errors combine
        self.combinations = math.prod(len(each) + 1 for each in options)
        self.budget = len(paired_trials.seeds) * max(self.combinations // 10, LEAST_COMBINATIONS)
        self.extra_errors: dict[tuple[int, int], float] = {}  # errors of options in addition to those measured alone
        self.unchanged: Choice = (0,) * len(parts)
        self._has_begun = False

    def run(self) -> Search:
        """Run the search; every step follows only from the losses."""
        if self.start != self.paired_trials.reference and not self.run_trials([self.unchanged])[0].is_inside:
            ratio = exponential(self.trials[self.unchanged].mean)
            raise ValueError(
                f"The loss under start is {ratio:.4g} times the loss of the reference, more than `within` "
                "allows; start from a wider policy."
            )
        while self.paired_trials.trainings.count < self.budget and any(
            choice := self.refine(self.cheapest_within_share())
        ):
            confirmation = self.paired_trials.confirm(self.trials[choice].policy)
            if confirmation is not None:
                return self.search_result(self.trials[choice], confirmation)
            self.exclude(choice)
        confirmation = None if self.start == self.paired_trials.reference else self.paired_trials.confirm(self.start)
        if confirmation is not None:
            return self.search_result(self.trials[self.unchanged], confirmation)
        return self.search_result(
            Trial(self.policy_name(self.paired_trials.reference), self.paired_trials.reference),
            self.paired_trials.confirm_reference(),
        )

    def cheapest_within_share(self) -> Choice:
        """Return the cheapest combination that is within the share by present knowledge, or the unchanged one.

        The first one is trained as a whole: if all parts can be narrow at once, no part must be tried alone.
        """
        while True:
            choice = next(self.candidates())
            if not any(choice) or (choice in self.trials and self.trials[choice].is_inside):
                return choice
            unknown = [single for single in self.single_changes(choice) if single not in self.trials]
            if unknown and self._has_begun and unknown != [choice]:
                self.run_trials(unknown)
                continue
            self._has_begun = True
            if not self.run_trials([choice])[0].is_inside:
                self.exclude(choice)

    def exclude(self, choice: Choice) -> None:
        """Exclude a combination that was worse than predicted, and correct the predictions.

        Either the power by which errors combine decreases, or the parts get additional errors, so that the prediction
        no longer allows the combination.
        """
        self.excluded.add(choice)
        if not all(single in self.trials for single in self.single_changes(choice)):
            return
        chosen = [(part, option) for part, option in enumerate(choice) if option]
        errors = [self.part_error(part, option) for part, option in chosen]
        error_ratio = (
            max(exponential(self.trials[choice].mean) - 1, self.paired_trials.within) / self.paired_trials.within
        )
        if self.error_power > 1 and max(errors) > 0:
            self.error_power = min(self.error_power, error_power(errors, error_ratio))
        elif (predicted := sum(errors) + sum(self.extra_errors.get(each, 0.0) for each in chosen)) <= 1:
            for each in chosen:
                self.extra_errors[each] = self.extra_errors.get(each, 0.0) + (1 - predicted) / len(chosen) + SUM_SLACK

    def refine(self, choice: Choice) -> Choice:
        """Return the combination after single parts were made cheaper, as long as the loss remains within the share.

        Combinations are tried unless the predicted error is far too large: errors often combine to less than predicted.
        """
        while True:
            near = [
                (*choice[:part], option, *choice[part + 1 :])
                for part, chosen in enumerate(choice)
                for option in range(1, len(self.options[part]) + 1)
                if self.saving(part, option) > self.saving(part, chosen)
            ]
            near.sort(key=lambda other: -sum(self.saving(part, option) for part, option in enumerate(other)))
            untried = (other for other in near if other not in self.trials and not self.is_hopeless(other))
            better = next((other for other in untried if self.run_trials([other])[0].is_inside), None)
            if better is None:
                return choice
            choice = better

    def is_hopeless(self, choice: Choice) -> bool:
        """True if a combination is not worth a training: a part fails alone, or the predicted error is too large."""
        errors = list(map(self.part_error, range(len(choice)), choice))
        return self.is_excluded(choice) or combined_error(errors, self.error_power) > WORTHWHILE_ERROR

    def candidates(self) -> Iterator[Choice]:
        """Yield combinations that may be within the share, the cheapest first, and finally the unchanged one."""
        saved = [[0.0, *(option.saving for option in options)] for options in self.options]
        excess = [
            [
                self.part_error(part, option) ** self.error_power + self.extra_errors.get((part, option), 0.0)
                for option in range(len(options) + 1)
            ]
            for part, options in enumerate(self.options)
        ]
        for choice in cheapest_choices(saved, excess, 1 + SUM_SLACK):
            if any(choice) and not self.is_excluded(choice):
                yield choice
        yield self.unchanged

    def part_error(self, part: int, option: int) -> float:
        """Return the share of the allowed error that one part uses alone; 0 as long as it was not tried."""
        trial = self.trials.get(self.single_change(part, option)) if option else None
        if trial is None:
            return 0.0
        return max(0.0, exponential(trial.mean) - 1) / self.paired_trials.within if trial.is_inside else math.inf

    def is_excluded(self, choice: Choice) -> bool:
        """True if the combination, or one that is wider in every part, was excluded."""
        return any(is_narrower(self.choice_values(choice), self.choice_values(other)) for other in self.excluded)

    def choice_values(self, choice: Choice) -> list[Any]:
        """Return the value of each part; None for parts that keep the value of the start."""
        return [self.options[part][option - 1].value if option else None for part, option in enumerate(choice)]

    def single_change(self, part: int, option: int) -> Choice:
        """Return the combination in which only this part changes."""
        return tuple(option if place == part else 0 for place in range(len(self.parts)))

    def single_changes(self, choice: Choice) -> list[Choice]:
        """Return, for each part that changes, the combination in which only this part changes."""
        return [self.single_change(part, option) for part, option in enumerate(choice) if option]

    def saving(self, part: int, option: int) -> float:
        """Return the cost that the option saves."""
        return self.options[part][option - 1].saving if option else 0.0

    def run_trials(self, choices: Sequence[Choice]) -> list[Trial]:
        """Return the trials of these combinations after their trainings; exclude those that fail."""
        trials = [self.trials.setdefault(choice, self.new_trial(choice)) for choice in choices]
        self.paired_trials.decide(trials)
        self.excluded.update(choice for choice, trial in zip(choices, trials, strict=True) if not trial.is_inside)
        return trials

    def new_trial(self, choice: Choice) -> Trial:
        """Return a new trial of the policy that a combination represents."""
        policy, names = with_explicit_roles(self.start, self.parts), []
        for part, option in enumerate(choice):
            if option:
                chosen = self.options[part][option - 1]
                policy = self.parts[part].apply_to_policy(policy, chosen.value)
                names.append(f"{self.parts[part]}={chosen.label}")
        if not names:
            return Trial(self.policy_name(self.start), self.start)
        label = ", ".join(names)
        return Trial(label, replace(policy, name=label, source=None))

    def policy_name(self, policy: Policy) -> str:
        """Return the name of the reference or of the start."""
        return policy.name or ("the reference" if policy == self.paired_trials.reference else "start")

    def search_result(self, answer: Trial, confirmation: Confirmation) -> Search:
        """Return the result of the search."""
        paired_trials, points = (
            self.paired_trials,
            [trial.point(self.price(trial.policy)) for trial in self.trials.values()],
        )
        reference_cost, base = self.price(paired_trials.reference), self.policy_name(paired_trials.reference)
        points.insert(
            0,
            SearchPoint(
                base, paired_trials.reference, reference_cost, 1.0, 1.0, 1.0, len(paired_trials.seeds), REFERENCE
            ),
        )
        return Search(
            policy=answer.policy,
            label=answer.label,
            reference=base,
            within=paired_trials.within,
            cost=self.price(answer.policy),
            reference_cost=reference_cost,
            confirmation=confirmation,
            points=tuple(points),
            trainings=paired_trials.trainings.count,
            combinations=self.combinations,
        )


def _check_arguments(train: Any, within: Any, formats: Any) -> None:
    if not callable(train):
        raise ValueError(f"search takes a function train(policy, seed), got a {type(train).__name__}.")
    try:
        signature(train).bind("policy", 0)
    except TypeError as error:
        raise ValueError(f"search calls train(policy, seed); {train!r} does not take these: {error}.") from None
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 < within <= FP64.max:
        text = message_text(within)
        raise ValueError(f"within must be a positive number, such as 0.01 for one percent more loss; got {text}.")
    if isinstance(formats, str) or not isinstance(formats, Collection) or not len(formats):
        raise ValueError(f"formats must be a list of formats, got {formats!r}.")


def _checked_seeds(seeds: Any) -> list[int]:
    seed_list = list(seeds) if isinstance(seeds, Iterable) else []
    if (
        len(seed_list) < 2
        or not all(type(seed) is int and seed >= 0 for seed in seed_list)
        or len(set(seed_list)) < len(seed_list)
    ):
        raise ValueError(f"seeds must be two or more different integers from 0, such as range(5); got {seeds!r}.")
    return seed_list
