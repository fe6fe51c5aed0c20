"""`fit`: a training from its parts, from the start or from a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sized
from contextlib import nullcontext
from typing import Any

from simfloat.arithmetic.machines import device_named
from simfloat.checks import check_count, is_torch_model
from simfloat.simulation.switching import SwitchingRule
from simfloat.train.checkpoints import Checkpoints
from simfloat.train.differences import as_allowed_names
from simfloat.train.feed import BatchSource
from simfloat.train.history import History
from simfloat.train.progress_bar import ProgressBar
from simfloat.train.resuming import resume_training
from simfloat.train.training import Callback, Training, TrainingPlan
from simfloat.train.training_step import Metric, TrainingStep

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
