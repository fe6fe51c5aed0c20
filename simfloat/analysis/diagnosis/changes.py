"""Remedies of a program with its own dtypes: changes of the program, which trainings of changed copies verify.

No role of a policy widens the dtype of a tensor. So the remedies of such a program are an upcast, a larger eps, another
mask, scaled queries, scaled float8 tensors, a master copy of the weights, or a loss scale. The policy of a trial
contains them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from simfloat.policy import Policy

#: The beginning of advice that is a change of the program.
IN_THE_PROGRAM = "in the program: "

#: The changes, each with its description. {path} is a module, an optimizer or a class of modules, {value} a number,
#: and {inverse} its inverse.
UPCAST, UPCAST_LOSS, EPS = "upcast", "upcast of the loss", "eps"
WIDE_RESULT, WIDE_INSIDE = "kept upcast", "upcast inside"
MASK, SCORES, MASTER, LOSS_SCALE = "mask", "scores", "master copy", "loss scale"
FLOAT8_SCALE = "float8 scale"
WORDS = {
    UPCAST: "run {path!r} in float32, by model.get_submodule({path!r}).float(), x.float() before it and "
    ".to(x.dtype) after it",
    WIDE_RESULT: "run {path!r} in float32 and keep its result in float32, by model.get_submodule({path!r}).float() and "
    "x.float() before it, without .to(x.dtype) after it",
    WIDE_INSIDE: "run {path!r} in float32 and keep its result in float32, by model.get_submodule({path!r}).float(), "
    "by x.float() before it and in place of its own conversions to a narrower dtype, and outside of torch.autocast",
    UPCAST_LOSS: "compute the loss in float32, by loss_fn(model(x).float(), y)",
    EPS: "{path}(..., eps={value:g})",
    MASK: "mask by torch.finfo(x.dtype).min or torch.where, not by a number beyond the dtype",
    SCORES: "scale q before its product, (q * {value:g}) @ k.mT, and multiply the factor of the scores by {inverse:g}",
    MASTER: "keep a master copy of the weights, by model.float(), and compute under torch.autocast",
    LOSS_SCALE: "a loss scale, torch.amp.GradScaler(init_scale={value:.0f})",
    FLOAT8_SCALE: "scale float8 tensors, s = x.abs().amax() / torch.finfo(dtype).max, (x / s).to(dtype), and multiply "
    "the result of the reverse conversion by s",
}

#: The attributes for the eps of a divisor: in PyTorch's modules, and in Hugging Face's Llama and T5.
EPS_ATTRIBUTES = ("eps", "variance_epsilon")


class Change(NamedTuple):
    """A change of a program: its kind, the path of a module or the name of a class, and a value."""

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


def eps_attribute(module: Any) -> str:
    """Return the name of the attribute with the eps of a module; empty if it has none."""
    return next((name for name in EPS_ATTRIBUTES if isinstance(getattr(module, name, None), int | float)), "")


def set_eps(change: Change, model: Any, optimizer: Any) -> None:
    """Set the eps of the optimizer or of the modules that have the class of the change; a larger eps stays."""
    for group in optimizer.param_groups if type(optimizer).__name__ == change.path else ():
        group["eps"] = change.value
    for _, module in model.named_modules():
        name = eps_attribute(module) if type(module).__name__ == change.path else ""
        if name and getattr(module, name) < change.value:
            setattr(module, name, change.value)
