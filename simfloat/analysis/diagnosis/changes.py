"""Remedies of a program with its own dtypes: changes of the program, which trainings of changed copies verify.

No role of a policy widens the dtype of a tensor. So the remedies of such a program are an upcast, a larger eps, another
mask, scaled queries, a master copy of the weights, or a loss scale. The policy of a trial contains them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from simfloat.analysis.diagnosis.trial import TrainingTrial
from simfloat.arithmetic.catalog import kind_of
from simfloat.policy import Policy
from simfloat.policy.roles import CONTRACTION
from simfloat.telemetry.advice import FirstNaN
from simfloat.telemetry.entries import Key

#: The beginning of advice that is a change of the program.
IN_THE_PROGRAM = "in the program: "

#: The changes, each with its description. {path} is a module or an optimizer, {value} a number, {inverse} its inverse.
UPCAST, UPCAST_LOSS, EPS = "upcast", "upcast of the loss", "eps"
MASK, SCORES, MASTER, LOSS_SCALE = "mask", "scores", "master copy", "loss scale"
WORDS = {
    UPCAST: "run {path!r} in float32, by model.get_submodule({path!r}).float(), x.float() before it and "
    ".to(x.dtype) after it",
    UPCAST_LOSS: "compute the loss in float32, by loss_fn(model(x).float(), y)",
    EPS: "{path}(..., eps={value:g})",
    MASK: "mask by torch.finfo(x.dtype).min or torch.where, not by a number beyond the dtype",
    SCORES: "scale q before its product, (q * {value:g}) @ k.mT, and multiply the factor of the scores by {inverse:g}",
    MASTER: "keep a master copy of the weights, by model.float(), and compute under torch.autocast",
    LOSS_SCALE: "a loss scale, torch.amp.GradScaler(init_scale={value:.0f})",
}

#: The largest number of upcasts that are tried one by one, and the values of the other changes that are tried.
MOST_UPCASTS = 4
EPSILONS, SCORE_FACTORS, LOSS_SCALES = (1e-7, 1e-6, 1e-5, 1e-4), (2.0**-4, 2.0**-8), (2.0**8, 2.0**12, 2.0**16)


class Change(NamedTuple):
    """A change of a program: its kind, the path of a module or the name of an optimizer, and a value."""

    kind: str
    path: str = ""
    value: float = 1.0

    @property
    def role(self) -> str:
        """The role that the change sets: none."""
        return ""

    def apply(self, policy: Policy) -> Policy:
        """Return the policy of a trial with this change."""
        return ProgramPolicy(**_fields_of(policy), changes=(*changes_of(policy), self))

    def for_all_paths(self) -> Change:
        """Return the change itself, which has no pattern of paths."""
        return self

    @property
    def advice(self) -> str:
        """The change as a sentence."""
        return f"{IN_THE_PROGRAM}{self}"

    def __str__(self) -> str:
        return WORDS[self.kind].format(path=self.path, value=self.value, inverse=1 / self.value)


@dataclass(frozen=True, kw_only=True, repr=False)
class ProgramPolicy(Policy):
    """A policy for trials of a program with changes."""

    changes: tuple[Change, ...] = ()


def _fields_of(policy: Policy) -> dict[str, Any]:
    return {field.name: getattr(policy, field.name) for field in fields(Policy)}


def changes_of(policy: Policy) -> tuple[Change, ...]:
    """Return the changes of the program that the policy of a trial contains."""
    return policy.changes if isinstance(policy, ProgramPolicy) else ()


def without_changes(policy: Policy) -> Policy:
    """Return a policy that can be used outside of trials."""
    return Policy(**_fields_of(policy)) if isinstance(policy, ProgramPolicy) else policy


def changes_for_first(first: FirstNaN, source: Key, trial: TrainingTrial) -> Iterator[Change]:
    """Yield the changes that may prevent a NaN or infinity, the smallest first; `source` is the place of its cause."""
    if first.phase == "update":
        yield from larger_eps(trial)
        yield Change(MASTER)
        return
    if first.phase == "forward":
        yield Change(MASK)
        if kind_of(source.operation) == CONTRACTION:
            yield from (Change(SCORES, source.path, factor) for factor in SCORE_FACTORS)
    elif trial.parts[2] is not None:
        scale = trial.parts[2].get_scale()
        yield from (Change(LOSS_SCALE, "", value) for value in reversed(LOSS_SCALES) if value < scale)
    yield from upcasts([source, first.key], trial)
    yield Change(MASTER)


def larger_eps(trial: TrainingTrial) -> Iterator[Change]:
    """Yield larger values of the eps of the optimizer, if it has one."""
    optimizer = trial.parts[1]
    present = [group["eps"] for group in optimizer.param_groups if isinstance(group.get("eps"), float)]
    larger = [value for value in EPSILONS if present and value > max(present)]
    yield from (Change(EPS, type(optimizer).__name__, value) for value in larger)


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
    scaled = [[*more, scale] for more in together for scale in scales] if is_backward else []
    return [*([change] for change in wide[:MOST_UPCASTS]), *scaled, wide] if not is_backward else [*scaled, wide]
