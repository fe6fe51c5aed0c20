"""Lists of operations that a policy narrows, widens or leaves alone, as automatic mixed precision does.

NVIDIA's guide calls them allow, deny and infer: operations on the first run in the narrow format, those on the second
in FP32, and all others in the widest format of their operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from simfloat.accumulate import Accumulator, sequential
from simfloat.formats import Format, as_format
from simfloat.policy.operation_roles import check_operation, roles_of
from simfloat.policy.role_types import OPERAND, WIDEST, format_of
from simfloat.policy.roles import RESULTS, UPDATE, Recipe

#: The roles of an operation's operands and of its sums, each after the one that it follows.
OPERANDS = ("compute", "compute_gradients", "compute_weights")
SUMS = ("accumulate", "accumulate_gradients", "reduce")


class ListedPolicy(Protocol):
    """A policy, as far as its lists need it."""

    def recipe(self, path: str = "", *operations: str) -> Recipe:
        """What an operation uses."""

    def given_roles(self, path: str, operations: Sequence[str]) -> dict[str, Any]:
        """The roles of an operation as they were given; None where one follows another."""


def roles_to_allow(policy: ListedPolicy, operations: Sequence[str], format: Any) -> dict[str, Any]:
    """The roles that bring operations back into a policy's own formats, or into `format`."""
    recipe = policy.recipe()
    target_roles = {role: getattr(recipe, role) for role in (*OPERANDS, *RESULTS, *SUMS, "rotation")}
    if format is not None:
        target_roles |= dict.fromkeys(OPERANDS, OPERAND.read(format))
    narrow = format_of(target_roles["compute"])
    # Results without a format of their own take that of the operands.
    target_roles |= {role: narrow for role in RESULTS if format is not None or target_roles[role] == WIDEST}
    return _fewest(policy, operations, target_roles)


def roles_to_deny(policy: ListedPolicy, operations: Sequence[str], format: Any) -> dict[str, Any]:
    """The roles with which operations are carried out in `format` throughout, forward and backward."""
    recipe, wide = policy.recipe(), as_format(format)
    sums = {role: _accumulator_in_format(getattr(recipe, role), wide) for role in SUMS}
    return _fewest(policy, operations, dict.fromkeys((*OPERANDS, *RESULTS), wide) | sums | {"rotation": None})


def roles_to_infer(policy: ListedPolicy, operations: Sequence[str]) -> dict[str, Any]:
    """The roles with which operations run in the widest of their operands' formats."""
    _check(operations)
    for name in operations:
        if "compute" in roles_of(name):
            raise ValueError(
                f"infer leaves operations in the formats of their operands, but {name!r} rounds its operands to "
                "`compute`; allow or deny it."
            )
    explicit_roles = [policy.given_roles("", (name,)) | {"activations": WIDEST} for name in operations]
    roles: dict[str, Any] = {"activations": WIDEST}
    for role in RESULTS[1:]:
        if any(getattr(Recipe(**explicit), role) != WIDEST for explicit in explicit_roles):
            roles[role] = None
            explicit_roles = [explicit | {role: None} for explicit in explicit_roles]
    return roles


def _fewest(policy: ListedPolicy, operations: Sequence[str], target_roles: dict[str, Any]) -> dict[str, Any]:
    """The roles that have to be said so that all are as wanted, for the operations that use them."""
    _check(operations)
    explicit_roles = {name: policy.given_roles("", (name,)) for name in operations}
    recipes = {name: Recipe(**explicit) for name, explicit in explicit_roles.items()}
    roles: dict[str, Any] = {}
    for role, value in target_roles.items():
        users = [name for name in operations if role in roles_of(name)]
        # One role is always said, so that the list stands in the policy.
        is_first = role == "activations" and users and not roles
        if is_first or any(getattr(recipes[name], role) != value for name in users):
            roles[role] = value
            recipes = {name: Recipe(**explicit | roles) for name, explicit in explicit_roles.items()}
    return roles or {"gradients": target_roles["gradients"]}


def _check(operations: Sequence[str]) -> None:
    if not operations:
        raise ValueError("Name the operations, such as 'softmax'; got none.")
    for name in operations:
        check_operation(name)
        if name == UPDATE:
            raise ValueError(
                "An optimizer's update runs in the roles weights and optimizer_state of its parameter; override them, "
                "for example by override('*.weight', weights=simfloat.FP32)."
            )


def _accumulator_in_format(accumulator: Accumulator, format: Format) -> Accumulator:
    """The accumulator if it sums in `format` or exactly, else the sum in this format, one product after the other."""
    fits = not accumulator.is_matrix_unit and accumulator.result in (None, format)
    return accumulator if fits else sequential(format)
