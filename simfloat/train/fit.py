"""`fit`: train a model, from the start or from a checkpoint.

To resume, `fit` first checks that the checkpoint belongs to this training, and decides which of its states to restore.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from simfloat.arithmetic.machines import device_named
from simfloat.common import check_count, is_torch_model, warn
from simfloat.simulation.switching import SwitchingRule
from simfloat.train.checkpoints import (
    BATCHES_TAKEN,
    BEGUN,
    CHANGES,
    CONCLUDED,
    MANIFEST,
    Checkpoints,
    as_allowed_names,
    check_allowed_names,
    differences,
    is_allowed,
    list_differences,
)
from simfloat.train.data import BatchSource
from simfloat.train.history import COLUMNS, History, ProgressBar
from simfloat.train.states import restore_parts
from simfloat.train.step import Metric, TrainingStep
from simfloat.train.training import Callback, Training, TrainingPlan

#: Parts that may start anew if the checkpoint has a part of another kind.
REPLACEABLE_PARTS = ("optimizer", "scaler", "schedule", "observer")

States = Mapping[str, Any]


def resume_training(training: Training, checkpoints: Checkpoints | None, allow: tuple[str, ...]) -> None:
    """Continue from the newest undamaged checkpoint, or start anew if there is none.

    Raises ValueError, and restores nothing, if the checkpoint belongs to another training, unless `allow` contains all
    names in which the two differ. For these names, the present values are used.
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
        )  # after the comparison, which may explain missing batches, for example by another batch size
        _restore_by_manifest(training, path, states, names)
    else:
        training.batch_source.check_skipped(states[BATCHES_TAKEN])
        _restore_without_manifest(training, path, states)
    training.continue_from(states[BATCHES_TAKEN], states.get(CONCLUDED, True))


def _check_differences(training: Training, path: Path, states: States, allow: tuple[str, ...]) -> list[str]:
    """Return the names in which two trainings differ; raise ValueError if `allow` does not contain all of them."""
    before, step = states[MANIFEST], len(states["history"]["steps"]["loss"])
    now = _complete_manifest(training.manifest_at(states[BATCHES_TAKEN]), before)
    check_allowed_names(allow, before, now)
    names = differences(before, now)
    if refused := [name for name in names if not is_allowed(allow, name)]:
        raise ValueError(f"{path} belongs to another training:\n{list_differences(refused, before, now)}")
    for name, message in _warnings(training, before, now, step):
        if not is_allowed(allow, name):
            warn(f"{path} {message}")
    changed = [name for name in (*names, "simfloat") if before.get(name) != now.get(name)]
    changes = [{"step": step, "name": name, "before": before.get(name), "now": now.get(name)} for name in changed]
    training.manifest |= {BEGUN: before.get(BEGUN), CHANGES: [*before.get(CHANGES, []), *changes]}
    return names


def _complete_manifest(now: States, before: States) -> dict[str, Any]:
    """Return this training's manifest, completed with the digests of batches that only the earlier one has."""
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
        yield "observer", f"has no state of the observer {type(observer).__name__}, which begins after step {step}."


def _restore_by_manifest(training: Training, path: Path, states: States, names: list[str]) -> None:
    """Restore the states of a checkpoint, except for the names whose present values are used."""
    simulation, policy = training.simulation, training.simulation.policy
    chosen = _chosen_states(training, states, names)
    restore_parts(path, chosen, {name: part for name, part in training.parts.items() if name in chosen})
    if training.plan.switching is None and simulation.policy != policy:
        simulation.policy = policy
    if training.plan.schedule is not None and "schedule" in states and "schedule" not in chosen:
        training.step.replay(training.plan.schedule, training.history.steps)


def _restore_without_manifest(training: Training, path: Path, states: States) -> None:
    """Restore the states of a checkpoint that does not say to which training it belongs."""
    warn(f"{path} has no manifest, because an older version wrote it: it may belong to another training.")
    unused = [name for name in states if name not in (*training.parts, BATCHES_TAKEN, CONCLUDED, MANIFEST, "observer")]
    if unused:
        raise ValueError(f"{path} belongs to a training with a {unused[0]}, but fit was given none.")
    restore_parts(path, states, {name: part for name, part in training.parts.items() if name != "observer"})


def _chosen_states(training: Training, states: States, names: list[str]) -> dict[str, Any]:
    """Return the states to restore: for names that differ, the present values replace those of the checkpoint.

    If a learning rate differs, or an option that determines it, the schedule begins anew from its own first rates.
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
    """Return the options of a part among the names."""
    return {name.removeprefix(f"{part}.") for name in names if name.startswith(f"{part}.")}


def _replace_options(state: States, options: set[str], groups: list[dict[str, Any]]) -> States:
    """Return the state of an optimizer with the present values of these options."""
    theirs = state.get("param_groups")
    if not isinstance(theirs, list) or len(theirs) != len(groups) or not all(isinstance(x, Mapping) for x in theirs):
        return state  # loading it will raise the error
    new_options = [{name: value for name, value in group.items() if name in options} for group in groups]
    return {
        **state,
        "param_groups": [theirs | ours for theirs, ours in zip(state["param_groups"], new_options, strict=True)],
    }


def _scaler_options(step: TrainingStep, options: set[str]) -> dict[str, Any]:
    """Return these options of a loss scale under the names of its state."""
    values = {name: value for name, value in step.options(None)["scaler"].items() if name in options}
    if values.pop("init_scale", None) is None or step.scaler is None:
        return values
    return {**values, "scale": step.scaler.get_scale()}


Folder = str | os.PathLike[str]


def fit(
    model: Any,
    loss_fn: Callable[[Any, Any], Any],
    batches: Iterable[tuple[Any, Any]],
    optimizer: Any,
    *,
    scaler: Any = None,
    checkpoint: Folder | None = None,
    every: int = 100,
    resume: Folder | None = None,
    allow: str | Iterable[str] = (),
    steps: int | None = None,
    schedule: Any = None,
    clip: float | None = None,
    switching: SwitchingRule | None = None,
    accumulation: int = 1,
    replicas: int = 1,
    metrics: Mapping[str, Metric] | None = None,
    evaluate: Callable[[Any], Mapping[str, Any]] | None = None,
    evaluate_every: int = 100,
    stop: Callable[[History], bool] | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    device: str | None = None,
) -> History:
    """Train the model, inside a `simulate` block, and return the history of all steps.

        with sf.simulate("bf16-stochastic"):
            history = sf.train.fit(model, sf.nn.cross_entropy, batches, optimizer, checkpoint="run", resume="run")

    Each step takes the next (x, y) from `batches`, computes ``loss_fn(model(x), y)`` and its gradients, and updates the
    parameters. The training ends with the batches.

    A PyTorch model is trained in the same way, inside the block of :func:`simfloat.torch.simulate`, with an optimizer
    and a schedule from torch.optim and a torch.amp.GradScaler. Every bit equals that of a loop in PyTorch that clips by
    torch.nn.utils.clip_grad_norm_. Batches are tensors or arrays: floating-point arrays are converted to the dtype of
    the model, integer arrays to torch.long. Metrics receive tensors and run in PyTorch's own arithmetic. Checkpoints
    also contain PyTorch's random state. `device` is not supported; a model stays on its device.

    The observer of the simulation, such as a Recorder, receives each step's row of the history through its method
    `step`. Checkpoints contain its state if it has `state_dict` and `load_state_dict`, or `state` and `load_state`.

    After Ctrl-C, or an error in `batches`, `evaluate`, `stop` or a callback, no step is lost: Ctrl-C waits for the end
    of the step, and a checkpoint is written first. An error inside a step loses the steps since the last checkpoint.
    The model keeps what it has learned so far.

    Parameters:
        model: a simfloat.nn.Module or a torch.nn.Module.
        loss_fn: a function of (output, y) that returns the loss, a tensor of one element.
        batches: an iterable of pairs (x, y), such as `Batches`.
        optimizer: an optimizer for parameters of the model.
        scaler: a loss scale. Steps with gradients that are not finite are skipped; after 20 skipped steps in a row, a
            warning is issued. Without a scaler, no step is skipped.
        checkpoint: a folder for checkpoints. They contain the states of model, optimizer, scaler, schedule, simulation,
            history and observer, the number of batches taken, and the manifest. Two are kept. The last complete one
            survives any end of the process. Only one training at a time may write to a folder.
        every: the number of steps between checkpoints; another one is written at the end.
        resume: a folder from which the newest undamaged checkpoint is restored; None, a missing folder or an empty
            folder starts anew. `batches` must begin as in the first run, because the batches already taken are skipped.
            All later steps have the same bits as without interruption. A damaged checkpoint causes a warning.
        allow: names of the manifest in which this training may differ from that of the checkpoint, such as ``("lr",
            "seed")``; see below.
        steps: the total number of steps, before and after resuming; None to continue until the batches end.
        schedule: an object with a method `step`, which is called after each step.
        clip: the largest norm of all gradients together, after unscaling; None for no limit.
        switching: a rule such as `simfloat.Switching`; it is called after each step and returns the policy for the next
            one.
        accumulation: the number of batches in a step. Their gradients are added, and each loss is divided by the number
            of batches, which may be smaller in the last step.
        replicas: the number of equal parts into which each batch is split along its first axis, as in
            DistributedDataParallel; see below.
        metrics: functions of (output, y) by name, where outputs are arrays. The history contains the mean of their
            values over the batches of each step.
        evaluate: a function of the model that returns numbers by name. It runs with the model in evaluation mode, and
            uses copies of the random streams, so that its calls do not change the training.
        evaluate_every: the number of steps between evaluations.
        stop: a function of the history, such as EarlyStop; the training ends when it returns True.
        callbacks: functions ``f(step, record)`` that are called after each step, where `step` counts from 1 and
            `record` is the row of the history.
        progress: True to show a progress bar, which needs rich; by default it is shown on terminals.
        device: "cuda" or "cpu": model, optimizer and batches are moved there, and the bits are the same; None moves
            nothing.

    Returns:
        The `History`, with a column for each quantity and an entry for each step.

    Raises:
        ValueError: outside of `simulate`; if an override of the policy matches no part of the model; if parts do not
            belong together.
        ValueError: if the loss depends on a parameter that does not belong to the model; if a batch is not a pair.
        ValueError: if the checkpoint belongs to another training; if another training writes to the checkpoint folder.
        OSError: if a checkpoint cannot be written.

    On resuming, `fit` compares this training with that of the checkpoint: the policy, switching, the seed, model and
    loss_fn, optimizer, scaler and schedule with their options, clip, accumulation, replicas, the observer, and the size
    and values of the first batches. Functions are compared by name, and lambdas not at all. A difference that is not
    allowed raises ValueError; adding an observer is always allowed. Settings that you allow to differ take their new
    values. A new schedule replaces the old one, and sets the learning rate as if it had been used from the first step.
    Everything else continues from the checkpoint. `simfloat.train.manifest` prints the manifest.

    With `replicas`, each replica divides the gradient of its part's loss by the number of replicas.
    `simfloat.all_reduce` adds the quotients in ring order. Both are rounded to the role `all_reduce`. Buffers, such as
    the averages of batch norm, are those of the first replica.

    Examples:
        >>> x = np.random.default_rng(0).standard_normal((64, 2))
        >>> model = sf.nn.MLP([2, 8, 1], rng=0)
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> batches = sf.train.Batches(x, x[:, :1] * x[:, 1:], 16, epochs=5, seed=0)
        >>> with sf.simulate("bf16-kahan"):
        ...     history = sf.train.fit(model, sf.nn.mse_loss, batches, optimizer, progress=False)
        >>> len(history["loss"])
        20
    """
    kind = _kind_of_step(model)
    simulation = kind.simulation_in_force()
    check_count("replicas", replicas)
    total = _total_steps(batches, accumulation, steps)
    checkpoints, source = (None if folder is None else Checkpoints(folder) for folder in (checkpoint, resume))
    plan = TrainingPlan(
        steps=steps,
        accumulation=accumulation,
        checkpoints=checkpoints,
        every=every,
        schedule=schedule,
        switching=switching,
        evaluate=evaluate,
        evaluate_every=evaluate_every,
        stop=stop,
        callbacks=_as_callbacks(callbacks),
    )
    machine = None if device is None else device_named(device)
    step = kind(
        model, loss_fn, optimizer, scaler=scaler, clip=clip, accumulation=accumulation, metrics=metrics,
        machine=machine, replicas=replicas,
    )  # fmt: skip
    plan.check_step(step)
    if device is not None:
        model.to(device)
        optimizer.follow()
    simulation.policy.check_matched(step.paths())
    allowed, bar = as_allowed_names(allow), ProgressBar(progress, total)
    training = Training(step, simulation, plan, BatchSource(batches, keeps_digests=bool(checkpoints or source)))
    if checkpoints and source and checkpoints.is_same(source):
        source = checkpoints
    with checkpoints.lock() if checkpoints else nullcontext():
        resume_training(training, source, allowed)
        training.run(bar)
    return training.history


def _as_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple; raise ValueError if they are not a list."""
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        name = getattr(callbacks, "__name__", repr(callbacks))
        raise ValueError(f"callbacks must be a list of functions; use callbacks=[{name}].")
    return tuple(callbacks)


def _kind_of_step(model: Any) -> type[TrainingStep]:
    """Return the class of steps for a model."""
    if is_torch_model(model):
        from simfloat.train.torch_step import TorchStep

        return TorchStep
    return TrainingStep


def _total_steps(batches: Any, accumulation: Any, steps: Any) -> int | None:
    """Return the number of steps if it is known; raise ValueError for invalid batches or counts."""
    if not isinstance(batches, Iterable):
        raise ValueError(f"batches must be an iterable of pairs (x, y), got a {type(batches).__name__}.")
    check_count("accumulation", accumulation)
    if steps is not None:
        check_count("steps", steps)
    by_batches = -(-len(batches) // accumulation) if isinstance(batches, Sized) else None
    return min(by_batches, steps) if by_batches is not None and steps is not None else by_batches or steps
