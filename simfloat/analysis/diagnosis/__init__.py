"""`diagnose` finds the first faults of a training under a policy, and verifies remedies by running again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from simfloat.analysis.attribution.roles_used import is_of_torch
from simfloat.analysis.diagnosis.changes import without_changes
from simfloat.analysis.diagnosis.faults import (
    find_lost_decay,
    find_lost_updates,
    find_stalled_moments,
    find_underflowing_moments,
    mend_first_faults,
    withdraw_if_not_finite,
)
from simfloat.analysis.diagnosis.gradients import (
    GRADIENT_FAULTS,
    GradientErrors,
    find_saturation,
    find_swamped_sums,
    find_underflow,
    find_wrong_gradients,
    find_zero_gradients,
)
from simfloat.analysis.diagnosis.mending import NAN_IN_DATA, Diagnosis, Fault, PolicyRepair
from simfloat.analysis.diagnosis.trial import Batch, TensorTrial, TrainingTrial, TrialMoment
from simfloat.arithmetic.machines import on_cpu
from simfloat.common import check_count, check_loss_function
from simfloat.policy import Policy
from simfloat.policy.policy import as_policy, is_written

#: The number of searches for faults that other faults hid.
ROUNDS = 3


def diagnose(
    model: Any,
    loss_fn: Callable[[Any, Any], Any],
    batches: Iterable[Batch],
    policy: Policy | str,
    *,
    optimizer: Any = None,
    reference: Policy | str = "fp32",
    steps: int = 20,
    scaler: Any = None,
    seed: int = 0,
) -> Diagnosis:
    """Find the first faults of a training under a policy, in their order, and the overrides that fix them.

    Copies of the model, the optimizer and the loss scaler are trained under `policy` and under `reference`, with the
    same seed and the same batches. The search covers these faults, in this order:

    * NaN in the data. Then the first NaN or overflow to infinity: its step, phase, layer, operation and operands, and
      earlier overflow and underflow that explains it. The fault is fixed, and the search continues with the next one.
    * Lost updates (w + u = w for a quarter of the weights of a parameter), weight decay that changes nothing, moments
      that never decay, and moments that underflow.
    * Underflow that removes a tenth of the gradient of a parameter, saturation or sums in narrow accumulators that
      change a gradient by a tenth, and gradients that are zero.

    These shares are relative to the 2-norm of the gradient that the reference computes at the same weights. Underflow
    is measured for each parameter, relative to the gradient of this parameter. Parameters with less than 1e-4 of the
    norm of all gradients are left out, because their gradients may consist of rounding errors. Saturation and sums are
    measured in the same way, but relative to at least a tenth of the norm of all gradients.

    Each fault has the overrides that fix it. `verified` is True if another training with them no longer has the fault.
    For a NaN or an infinity, the loss and the gradients of the same step must also be finite with all verified
    remedies. The fault also names another loss scale, or a larger eps of a layer that divides by zero, if it helps. The
    attributes of a fault are `path`, `operation`, `phase`, `step`, `cause`, `operands` and `override`.

    No role widens a result under a policy that follows the dtypes of a program, such as ``"as-written"``. The reference
    is then the same program in float32. A remedy is a change of the program, such as an upcast, a larger eps, another
    mask, a master copy or a loss scale. A training of a copy with this change verifies it.

    An event is not a fault of the policy if the reference has it in the same step, at the same place and in as many
    elements. An overflow is not a fault either if the loss is finite and no gradient of a parameter changes by a tenth
    of this gradient. An example is the overflow of a mask. The arguments are not changed.

    Parameters:
        model: a simfloat.nn.Module or a torch.nn.Module.
        loss_fn: the loss; ``loss_fn(model(x), y)`` must be one value.
        batches: an iterable of pairs (x, y). At most `steps` of them are used, and repeated if there are fewer.
        policy: the policy to diagnose, or its name.
        optimizer: an optimizer of these parameters, from the same package as the model; None for no updates.
        reference: the policy to compare with, or its name.
        steps: the number of training steps.
        scaler: a loss scaler from the same package as the model; None for no loss scale.
        seed: the seed of the random streams, the same for all runs.

    Returns:
        A `Diagnosis`. It is iterable over the faults, and its `policy` has all verified overrides. Its text also
        shows the number of steps that the loss scale skipped. `simfloat.plots.draw_diagnosis` draws the losses.

    Raises:
        ValueError: if model, optimizer and scaler do not belong together; if `batches` is empty; if the loss is not one
            value.

    Examples:
        >>> model = sf.nn.MLP([2, 8, 1], rng=0)
        >>> optimizer = sf.optim.AdamW(model.parameters(), lr=1e-3)  # the eps of 1e-8 is zero in FP16
        >>> batches = [(np.array([[1.0, -1.0]]), np.array([[0.5]]))]
        >>> found = sf.diagnose(model, sf.nn.mse_loss, batches, "fp16-standard", optimizer=optimizer, steps=3)
        >>> found.first.kind, found.first.operation, found.first.override
        ('NaN', 'divide', "policy.override('*', weights=sf.FP32)")
    """
    chosen, exact = as_policy(policy, "diagnose"), as_policy(reference, "diagnose")
    check_count("steps", steps)
    check_count("seed", seed, 0)
    check_loss_function(loss_fn)
    if scaler is not None and optimizer is None:
        raise ValueError("A scaler scales the loss for an optimizer's step: also pass optimizer=.")
    first_batches = _first_batches(batches, steps)
    faults = [fault for number, batch in enumerate(first_batches) for fault in _nan_faults(number, batch)]
    clean = [batch for number, batch in enumerate(first_batches) if not any(fault.step == number for fault in faults)]
    if not clean:
        return Diagnosis(tuple(faults), chosen, {"policy": [], "mended": [], "reference": []})
    trial = _new_trial(model, loss_fn, clean, optimizer, scaler, seed, follows_program=is_written(chosen))
    repair = PolicyRepair(trial, chosen, exact, int(steps))
    _find_faults(repair)
    mended = withdraw_if_not_finite(repair)
    faults += repair.faults
    losses = {
        "policy": repair.policy_record,
        "mended": mended or repair.policy_record,
        "reference": repair.reference_record,
    }
    ordered = sorted(faults, key=lambda fault: fault.step)
    of_each = {name: record.losses for name, record in losses.items()}
    return Diagnosis(
        tuple(ordered), without_changes(repair.policy), of_each, len(repair.policy_record.fault_recorder.skipped)
    )


def _find_faults(repair: PolicyRepair) -> None:
    """Find the faults of the policy, and fix them in `repair.policy`."""
    policy = repair.policy
    if mend_first_faults(repair):
        trial = repair.trial
        is_changed = repair.policy != policy or repair.excused
        record = repair.train(repair.policy) or repair.policy_record if is_changed else repair.policy_record
        last = trial.batches[(repair.steps - 1) % len(trial.batches)]
        # With the state of delayed scalings at the end of the training: their initial scales are not a fault.
        moments = [TrialMoment(*at, record.state) for at in ((trial.parts, trial.batches[0]), (record.parts, last))]
        errors = GradientErrors(trial, repair.reference, moments)
        if trial.parts[1] is not None:
            find_lost_updates(repair, record)
            find_lost_decay(repair)
            find_stalled_moments(repair, record)
            find_underflowing_moments(repair, record)
            repair.adopt_verified()
        for _ in range(ROUNDS):
            fault_count = len(repair.faults)
            if is_written(repair.policy):
                find_wrong_gradients(repair, record, errors)
            else:
                find_underflow(repair, record, errors)
                find_saturation(repair, record, errors)
            find_swamped_sums(repair, record, errors)
            if len(repair.faults) == fault_count and not is_written(repair.policy):
                find_underflow(repair, record, errors, is_rare=True)
            if len(repair.faults) == fault_count and not is_written(repair.policy):
                find_zero_gradients(repair, errors)
            repair.adopt_verified()
            if len(repair.faults) == fault_count or errors.agrees(repair.policy):
                break
            record = repair.train(repair.policy) or record
        if not errors.agrees(repair.policy):
            repair.withdraw(GRADIENT_FAULTS)


def _new_trial(
    model: Any,
    loss_fn: Callable[[Any, Any], Any],
    batches: Sequence[Batch],
    optimizer: Any,
    scaler: Any,
    seed: int,
    *,
    follows_program: bool,
) -> TrainingTrial:
    if not is_of_torch(model, "diagnose"):
        return TensorTrial(model, loss_fn, batches, optimizer, scaler, seed)
    from simfloat.analysis.diagnosis.torch_trial import TorchTrial

    return TorchTrial(model, loss_fn, batches, optimizer, scaler, seed, follows_program=follows_program)


def _first_batches(batches: Any, steps: int) -> list[Batch]:
    """Return the first batches, at most `steps` of them; raise ValueError if the list is empty or one is not a pair."""
    if not isinstance(batches, Iterable):
        raise ValueError(f"batches must be an iterable of pairs (x, y), got a {type(batches).__name__}.")
    first_batches = list(islice(batches, steps))
    if not first_batches:
        raise ValueError("diagnose was given no batches: is the iterable a generator that was used before?")
    for batch in first_batches:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ValueError(f"A batch is a pair (x, y), got a {type(batch).__name__}; for one batch give [(x, y)].")
    return [(batch[0], batch[1]) for batch in first_batches]


def _nan_faults(step: int, batch: Batch) -> list[Fault]:
    """Return a fault for each part of a batch that contains NaN."""
    faults = []
    for name, part in zip("xy", batch, strict=True):
        for array in _part_arrays(part):
            if array.dtype.kind == "f" and np.isnan(array).any():
                place = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
                why = f"{np.count_nonzero(np.isnan(array))} of {name} are NaN, the first at {place}; left out below"
                faults.append(Fault(NAN_IN_DATA, step, "", "", "", why))
                break
    return faults


def _part_arrays(part: Any) -> list[Any]:
    """Return the arrays in a part of a batch, which may be an array or a list, tuple or dictionary of arrays."""
    if isinstance(part, dict):
        part = list(part.values())
    if isinstance(part, list | tuple) and any(hasattr(inner, "shape") or isinstance(inner, dict) for inner in part):
        return [array for inner in part for array in _part_arrays(inner)]
    detached = part.detach() if hasattr(part, "detach") else part
    if hasattr(detached, "is_floating_point") and detached.is_floating_point():
        detached = detached.double()  # NumPy has no bfloat16
    return [np.asarray(on_cpu(detached))]


__all__ = ["diagnose"]
