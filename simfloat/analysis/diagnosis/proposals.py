"""Propose changes of a program with its own dtypes for a fault, the smallest first."""

from __future__ import annotations

from collections.abc import Iterator

from simfloat.analysis.diagnosis.changes import (
    EPS,
    FLOAT8_SCALE,
    LOSS_SCALE,
    MASK,
    MASTER,
    SCORES,
    UPCAST,
    UPCAST_LOSS,
    WIDE_INSIDE,
    WIDE_RESULT,
    Change,
    eps_attribute,
)
from simfloat.analysis.diagnosis.trial import DIVIDED, TrainingTrial
from simfloat.arithmetic.catalog import kind_of
from simfloat.kernels.rounding.events import CAUSES, ZERO_BY_ZERO
from simfloat.policy.roles import CONTRACTION
from simfloat.telemetry.advice import FirstNaN
from simfloat.telemetry.entries import Key

#: The largest number of upcasts that are tried one by one, and the values of the other changes that are tried.
MOST_UPCASTS = 4
EPSILONS, SCORE_FACTORS, LOSS_SCALES = (1e-7, 1e-6, 1e-5, 1e-4), (2.0**-4, 2.0**-8), (2.0**8, 2.0**12, 2.0**16)

#: The values of the eps of a layer that are tried. A backward pass may contain eps^-1.5. In FP16 this is finite only if
#: eps is at least 7e-4.
LAYER_EPSILONS = (*EPSILONS, 1e-3)


def changes_for_first(first: FirstNaN, source: Key, trial: TrainingTrial) -> Iterator[Change]:
    """Yield the changes that may prevent a NaN or infinity, the smallest first; `source` is the place of its cause."""
    if first.phase == "update":
        yield from larger_eps(trial)
        yield Change(MASTER)
        return
    if first.phase == "forward":
        yield from larger_eps_of_layer(first, trial)
        yield Change(MASK)
        if source.operation == "cast":
            yield Change(FLOAT8_SCALE)
        if kind_of(source.operation) == CONTRACTION:
            yield from (Change(SCORES, source.path, factor) for factor in SCORE_FACTORS)
    elif trial.parts[2] is not None:
        scale = trial.parts[2].get_scale()
        yield from (Change(LOSS_SCALE, "", value) for value in reversed(LOSS_SCALES) if value < scale)
    wide = upcasts([source, first.key], trial)
    yield from wide
    if first.phase == "forward":
        # If the result of a layer is beyond the dtype, or if the layer itself converts to the dtype, an upcast that
        # converts the result back moves the overflow and does not prevent it.
        yield from (Change(kind, change.path) for kind in (WIDE_RESULT, WIDE_INSIDE) for change in wide if change.path)
    yield Change(MASTER)


def larger_eps(trial: TrainingTrial) -> Iterator[Change]:
    """Yield larger values of the eps of the optimizer, if it has one."""
    optimizer = trial.parts[1]
    present = [group["eps"] for group in optimizer.param_groups if isinstance(group.get("eps"), float)]
    larger = [value for value in EPSILONS if present and value > max(present)]
    yield from (Change(EPS, type(optimizer).__name__, value) for value in larger)


def larger_eps_of_layer(first: FirstNaN, trial: TrainingTrial) -> Iterator[Change]:
    """Yield larger values for the eps of the layer that divided by zero, if it has an eps."""
    layer = trial.module_at(first.path) if first.operands in (DIVIDED, CAUSES[ZERO_BY_ZERO]) else None
    name = eps_attribute(layer)
    larger = [value for value in LAYER_EPSILONS if name and value > getattr(layer, name)]
    yield from (Change(EPS, type(layer).__name__, value) for value in larger)


def upcasts(keys: list[Key], trial: TrainingTrial) -> list[Change]:
    """Return the upcasts of the modules at these keys, each once. Results outside of all layers belong to the loss."""
    paths = dict.fromkeys(trial.module_path(key.path) for key in keys)
    return [Change(UPCAST, path) if path else Change(UPCAST_LOSS) for path in paths]


def changes_for_gradients(keys: list[Key], trial: TrainingTrial) -> list[list[Change]]:
    """Return lists of changes that may repair gradients with underflow or saturation at these keys.

    GradScaler does not accept float16 parameters. So for these, a loss scale is tried together with a master copy.
    """
    scales = [Change(LOSS_SCALE, "", value) for value in LOSS_SCALES]
    together = [[Change(MASTER)]] if trial.has_narrow_parameters else [[]]
    wide = upcasts(keys, trial)
    is_backward = any(key.phase == "backward" for key in keys)
    conversions = [[Change(FLOAT8_SCALE)]] if any(key.operation == "cast" for key in keys) else []
    scaled = [[*more, scale] for more in together for scale in scales]
    single = [[change] for change in wide[:MOST_UPCASTS]]
    return [*conversions, *(scaled if is_backward else single), wide]
