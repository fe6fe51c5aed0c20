"""`fit`: a training from its parts, from the start or from a checkpoint.

Resuming first asks whether the checkpoint is of this training, and which of its states are restored.
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
    """Train the model, inside a `simulate` block, and give the history of all steps.

        with sf.simulate("bf16-stochastic"):
            history = sf.train.fit(model, sf.nn.cross_entropy, batches, optimizer, checkpoint="run", resume="run")

    Each step takes the next (x, y) of `batches` and goes down ``loss_fn(model(x), y)``; it ends when the batches do.

    A PyTorch model is trained in the same way, inside of the block of :func:`simfloat.torch.simulate`, with an
    optimizer and a schedule of torch.optim and a torch.amp.GradScaler: every bit is that of the loop in PyTorch, which
    clips by torch.nn.utils.clip_grad_norm_. Batches are tensors, or arrays, whose floating numbers become those of the
    model's type and integers long. Metrics take tensors, in PyTorch's own arithmetic. Checkpoints hold PyTorch's random
    numbers too. It takes no replicas and no device.

    * scaler: a loss scale; steps with gradients that are not finite are skipped. Without one they are carried out. A
      warning tells of 20 steps of which each was skipped.
    * checkpoint: a folder. After every `every` steps, and at the end, the states of model, optimizer, scaler, schedule,
      simulation, history and the simulation's observer are written there, with the count of batches taken and the
      manifest. Two checkpoints of a training are kept; the last complete one survives whatever ends the process. One
      training at a time writes to a folder.
    * resume: a folder whose newest checkpoint is restored; the batches that it has taken are skipped, so `batches` must
      begin where they began. What follows has the same bits as if training had never stopped. A damaged checkpoint is
      named in a warning, and the one before it used. A missing or empty folder means a fresh start.
    * allow: in what this training may differ from that of the checkpoint, by names of the manifest such as ``("lr",
      "seed")``. Policy, switching, seed, model, loss_fn, optimizer, scaler and schedule with their options, clip,
      accumulation, replicas, the size and the numbers of the first batches and the observer are compared, and
      differences that are not allowed are refused; an observer may be added. What is allowed is as it is given now, a
      schedule in the place of another one, and its lr, as if they had been there from the start; all else goes on.
      Functions are compared by their names, and lambdas, which have none, not at all.
      `simfloat.train.manifest` shows the manifest.
    * steps: how many to make in all, before and after resuming; None until the batches end. No more are made where a
      checkpoint holds as many or more.
    * schedule: its `step` is called after each step of the optimizer.
    * clip: the largest norm that all gradients together may have, after they are unscaled.
    * switching: a rule such as `simfloat.Switching`, which is asked after each step for the policy of the next.
    * accumulation: so many batches make a step; their gradients are added, and each loss is divided by their number,
      which may be smaller in the last step.
    * replicas: each batch is split along its first axis into so many parts of one size, as DistributedDataParallel has
      them. Each replica divides the gradient of its part's loss by their number, and the quotients are added by
      `simfloat.all_reduce` as a ring, all rounded to the role `all_reduce`. Buffers, such as batch norm's averages, are
      those of the first replica.
    * metrics: functions of (output, y), by name, whose numbers of each batch go into the history; outputs are arrays.
    * evaluate: a function of the model that gives numbers by name, called after every `evaluate_every` steps with the
      model in evaluation. It draws from copies of the random streams: how often it is called changes no bit.
    * stop: a function of the history, such as EarlyStop; training ends once it gives True.
    * callbacks: functions that are called after each step, as ``f(step, record)``, for loggers: `step` is the number of
      steps made, 1 after the first, and `record` a dictionary of that step's columns of the history.
    * device: "cuda" or "cpu", to which model, optimizer and each batch are moved; None leaves them where they are. The
      bits are the same on both.
    * progress: whether a bar is shown, by default on terminals; it needs rich.

    The observer of the simulation, such as a Recorder, receives each step's row of the history by its `step`. It is
    part of checkpoints if it has `state_dict` and `load_state_dict`, or `state` and `load_state`.

    An error in `batches`, `evaluate`, `stop` or a callback, and Ctrl-C, which waits for the step to end, lose no step:
    a checkpoint is written first. An error within a step loses those since the last checkpoint.

    Raises ValueError outside of `simulate`, for an override of the policy that matches no part of the model, for parts
    that do not belong together, for a parameter on which the loss depends and that is not the model's, for a batch that
    is no pair, for a checkpoint of another training, and for a checkpoint folder to which another training writes;
    OSError where a checkpoint cannot be written. The model keeps what it has learned by then.

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
    """The callbacks as a tuple; ValueError for what is no list of them."""
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        name = getattr(callbacks, "__name__", repr(callbacks))
        raise ValueError(f"callbacks is a list of functions; give callbacks=[{name}].")
    return tuple(callbacks)


def _kind_of_step(model: Any) -> type[TrainingStep]:
    """Return the class of steps for a model."""
    if is_torch_model(model):
        from simfloat.train.torch_step import TorchStep

        return TorchStep
    return TrainingStep


def _total_steps(batches: Any, accumulation: Any, steps: Any) -> int | None:
    """How many steps there will be, if that is known; ValueError for batches or counts that are none."""
    if not isinstance(batches, Iterable):
        raise ValueError(f"batches must be an iterable of pairs (x, y), got a {type(batches).__name__}.")
    check_count("accumulation", accumulation)
    if steps is not None:
        check_count("steps", steps)
    by_batches = -(-len(batches) // accumulation) if isinstance(batches, Sized) else None
    return min(by_batches, steps) if by_batches is not None and steps is not None else by_batches or steps
