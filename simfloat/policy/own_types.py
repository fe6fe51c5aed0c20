"""What a policy is in one of a program's own types, where it is written for them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from simfloat.accumulate import sequential
from simfloat.formats import FP32, FP64, Format
from simfloat.policy.overrides import Override
from simfloat.policy.policy import Policy
from simfloat.policy.roles import ROLES


def is_written(policy: Policy) -> bool:
    """Whether a policy, or an override of it, is written for a program's own types."""
    return bool(policy.written) or any(dict(each.roles).get("written") for each in policy.overrides)


@lru_cache(maxsize=1 << 8)
def policy_in_type(policy: Policy, format: Format) -> Policy:
    """The policy with this format where it has FP32 as one; in FP64 sums of FP32 are such, too."""
    values = {name: getattr(policy, name) for name in ROLES}
    roles = {name: _in_type(value, format) for name, value in values.items()}
    overrides = tuple(
        Override(each.path, each.operation, tuple((name, _in_type(value, format)) for name, value in each.roles))
        for each in policy.overrides
    )
    return replace(policy, **roles, overrides=overrides)


def _in_type(value: Any, format: Format) -> Any:
    if value == FP32 or (format == FP64 and value == sequential(FP32)):
        return format if value == FP32 else sequential(format)
    return value
