"""What is true of a policy as a whole, whichever layer and operation."""

from __future__ import annotations

from typing import Any

from simfloat.accumulate import Accumulator
from simfloat.arithmetic._cast import Cast
from simfloat.arithmetic.hadamard import Hadamard
from simfloat.formats import Rounding
from simfloat.policy.policy import Policy
from simfloat.policy.role_types import WIDEST
from simfloat.policy.roles import ROLES


def draws_bits(policy: Policy) -> bool:
    """Whether any rounding under the policy is random: of results, in the steps of sums, of operands, in updates."""
    return any(map(_is_random, _values(policy)))


def takes_formats(policy: Policy) -> bool:
    """Whether any result under the policy takes the format of an operand."""
    return any(value == WIDEST for value in _values(policy))


def _values(policy: Policy) -> list[Any]:
    """What the roles are, anywhere."""
    values = [getattr(policy, role) for role in ROLES]
    return values + [value for override in policy.overrides for _, value in override.roles]


def _is_random(value: Any) -> bool:
    """Whether a role's value is random in any way."""
    if isinstance(value, Rounding):
        return value.is_stochastic
    if isinstance(value, Accumulator):
        return any(mode.is_stochastic for mode in value.roundings)
    return (
        value == "stochastic" or isinstance(value, Hadamard) or isinstance(value, Cast) and value.rounding.is_stochastic
    )
