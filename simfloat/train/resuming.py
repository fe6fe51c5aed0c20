"""Resuming from a checkpoint: whether it is of this training, and which of its states are restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simfloat.checks import warn
from simfloat.train.checkpoints import BATCHES_TAKEN, CONCLUDED, MANIFEST, Checkpoints
from simfloat.train.differences import check_allowed_names, differences, is_allowed, list_differences
from simfloat.train.history import COLUMNS
from simfloat.train.manifest import BEGUN, CHANGES
from simfloat.train.saving import restore_parts
from simfloat.train.training import Training
from simfloat.train.training_step import TrainingStep

#: Parts that go on without the state of one of another kind.
REPLACEABLE_PARTS = ("optimizer", "scaler", "schedule", "observer")

States = Mapping[str, Any]


def resume_training(training: Training, checkpoints: Checkpoints | None, allow: tuple[str, ...]) -> None:
    """Go on from the newest checkpoint that is whole; from the start if there is none.

    Raises ValueError, and restores nothing, if it is that of another training, unless `allow` names all in which the
    two differ: in these a training stays as it is given.
    """
    newest = checkpoints and checkpoints.read()
    if not newest:
        check_allowed_names(allow, training.manifest)
        return
    path, states = newest
    training.batch_source.skip(states[BATCHES_TAKEN])
    columns = [*COLUMNS, *training.step.metrics]
    if (before := list(states["history"]["steps"])) != columns:
        raise ValueError(f"{path} has the columns {before}, not {columns}; give the same metrics.")
    if isinstance(states.get(MANIFEST), Mapping):
        names = _check_differences(training, path, states, allow)
        training.batch_source.check_skipped(
            states[BATCHES_TAKEN]
        )  # after what tells why there are fewer batches, as their size
        _restore_by_manifest(training, path, states, names)
    else:
        training.batch_source.check_skipped(states[BATCHES_TAKEN])
        _restore_without_manifest(training, path, states)
    training.continue_from(states[BATCHES_TAKEN], states.get(CONCLUDED, True))


def _check_differences(training: Training, path: Path, states: States, allow: tuple[str, ...]) -> list[str]:
    """The names in which the training of a checkpoint and this one differ; ValueError unless `allow` has them."""
    before, step = states[MANIFEST], len(states["history"]["steps"]["loss"])
    now = _complete_manifest(training.manifest_at(states[BATCHES_TAKEN]), before)
    check_allowed_names(allow, before, now)
    names = differences(before, now)
    if refused := [name for name in names if not is_allowed(allow, name)]:
        raise ValueError(f"{path} is of another training:\n{list_differences(refused, before, now)}")
    for name, message in _warnings(training, before, now, step):
        if not is_allowed(allow, name):
            warn(f"{path} {message}")
    changed = [name for name in (*names, "simfloat") if before.get(name) != now.get(name)]
    changes = [{"step": step, "name": name, "before": before.get(name), "now": now.get(name)} for name in changed]
    training.manifest |= {BEGUN: before.get(BEGUN), CHANGES: [*before.get(CHANGES, []), *changes]}
    return names


def _complete_manifest(now: States, before: States) -> dict[str, Any]:
    """This training's manifest, in which batches that are missing are those of before."""
    digests, then = now["data"], before.get("data", [])
    return {
        **now,
        **({} if digests else {"batch_size": before.get("batch_size")}),
        "data": digests + then[len(digests) :],
    }


def _warnings(training: Training, before: States, now: States, step: int) -> Iterator[tuple[str, str]]:
    """Yield the warnings about a checkpoint of the same training, each with the name that allows it."""
    if (version := before.get("simfloat")) != now["simfloat"]:
        yield (
            "simfloat",
            f"was written by simfloat {version}, and this is {now['simfloat']}: see its changelog for bits.",
        )
    observer = training.simulation.observer
    if observer is not None and before.get("observer") is None:
        yield "observer", f"knows nothing of the observer {type(observer).__name__}, which begins after step {step}."


def _restore_by_manifest(training: Training, path: Path, states: States, names: list[str]) -> None:
    """Bring the parts into the states of a checkpoint, but for the names that stay as they are given."""
    simulation, policy = training.simulation, training.simulation.policy
    chosen = _chosen_states(training, states, names)
    restore_parts(path, chosen, {name: part for name, part in training.parts.items() if name in chosen})
    if training.plan.switching is None and simulation.policy != policy:
        simulation.policy = policy
    if training.plan.schedule is not None and "schedule" in states and "schedule" not in chosen:
        training.step.replay(training.plan.schedule, training.history.steps)


def _restore_without_manifest(training: Training, path: Path, states: States) -> None:
    """Bring the parts into the states of a checkpoint that does not tell which training it is of."""
    warn(f"{path} has no manifest, as those of older versions: whether it is of this training is not known.")
    unused = [name for name in states if name not in (*training.parts, BATCHES_TAKEN, CONCLUDED, MANIFEST, "observer")]
    if unused:
        raise ValueError(f"{path} is of a training with a {unused[0]}, and fit was given none.")
    restore_parts(path, states, {name: part for name, part in training.parts.items() if name != "observer"})


def _chosen_states(training: Training, states: States, names: list[str]) -> dict[str, Any]:
    """The states of a checkpoint, with what is given now for the names of differences, or without them.

    Where a learning rate differs, or what sets it, the schedule begins anew, from the rates that it has set.
    """
    chosen = {name: state for name, state in states.items() if name not in REPLACEABLE_PARTS or name not in names}
    options = _changed_options("optimizer", names)
    rates = {"optimizer", "optimizer.lr", "schedule"} & {*names} or _changed_options("schedule", names)
    if training.plan.schedule is not None and rates:
        chosen.pop("schedule", None)
        options |= {"lr", "initial_lr"}
    if "optimizer" in chosen:
        chosen["optimizer"] = _replace_options(chosen["optimizer"], options, training.step.optimizer.param_groups)
    if training.step.scaler is not None and "scaler" in chosen:
        chosen["scaler"] = {**chosen["scaler"], **_scaler_options(training.step, _changed_options("scaler", names))}
    left_out = "rule" if "switching" in names else None
    seed = {"seed": training.simulation.seed} if "seed" in names else {}
    chosen["simulation"] = {name: value for name, value in chosen["simulation"].items() if name != left_out} | seed
    return chosen


def _changed_options(part: str, names: list[str]) -> set[str]:
    """The options of a part among the names."""
    return {name.removeprefix(f"{part}.") for name in names if name.startswith(f"{part}.")}


def _replace_options(state: States, options: set[str], groups: list[dict[str, Any]]) -> States:
    """The state of an optimizer with these options as its groups have them."""
    theirs = state.get("param_groups")
    if not isinstance(theirs, list) or len(theirs) != len(groups) or not all(isinstance(x, Mapping) for x in theirs):
        return state  # which loading it refuses
    new_options = [{name: value for name, value in group.items() if name in options} for group in groups]
    return {
        **state,
        "param_groups": [theirs | ours for theirs, ours in zip(state["param_groups"], new_options, strict=True)],
    }


def _scaler_options(step: TrainingStep, options: set[str]) -> dict[str, Any]:
    """These options of a loss scale, as its state names them."""
    values = {name: value for name, value in step.options(None)["scaler"].items() if name in options}
    if values.pop("init_scale", None) is None or step.scaler is None:
        return values
    return {**values, "scale": step.scaler.get_scale()}
