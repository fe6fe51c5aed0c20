"""The operations that an override can name, and the roles that matter to each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from simfloat.arithmetic.catalog import kind_of, names
from simfloat.checks import did_you_mean
from simfloat.policy.roles import COMPOSITE, CONTRACTION, MOVEMENT, POINTWISE, REDUCTION, ROLES, UPDATE

#: Classes of operations. An override for a composite holds for all that happens inside, so composites are none.
CLASSES = (CONTRACTION, REDUCTION, POINTWISE, MOVEMENT)

#: What composites are made of, and what concerns them as such.
INSIDE = (REDUCTION, POINTWISE, MOVEMENT, COMPOSITE)

#: Composites that multiply matrices, too.
OF_CONTRACTIONS = ("scaled_dot_product_attention",)


#: Operations that only PyTorch models have, and that the lists of mixed precision name.
OF_PYTORCH = {
    "logit": COMPOSITE, "entropy": COMPOSITE, "logaddexp": COMPOSITE,
    "soft_margin_loss": COMPOSITE, "multi_margin_loss": COMPOSITE,
    "prod": POINTWISE, "exp2": POINTWISE,
}  # fmt: skip


def check_operation(name: str) -> None:
    """Raise ValueError unless `name` is an operation, a composite or a class of operations."""
    operations = list(dict.fromkeys([*names(), *OF_PYTORCH, *CLASSES]))
    if name not in operations:
        raise ValueError(
            f"Unknown operation {name!r}. Operations: {', '.join(sorted(operations))}.{did_you_mean(name, operations)}"
        )


def with_classes(operations: Iterable[str]) -> tuple[str, ...]:
    """The names of operations, and of the classes that they are of; an optimizer's update is of none."""
    all_names = tuple(operations)
    return (*all_names, *(kind for name in all_names if name != UPDATE and (kind := kind_of(name))))


def roles_of(operation: str) -> tuple[str, ...]:
    """The roles that matter to an operation, or to those of a class or inside a composite."""
    kind = UPDATE if operation == UPDATE else kind_of(operation) or OF_PYTORCH.get(operation)
    return _roles_of_kind(kind or operation, operation in OF_CONTRACTIONS)


@cache
def _roles_of_kind(kind: str, has_contractions: bool = False) -> tuple[str, ...]:
    """The roles that matter to operations of a kind."""
    kinds = INSIDE if kind == COMPOSITE else (kind,)
    kinds = (*kinds, CONTRACTION) if has_contractions else kinds
    return tuple(name for name, role in ROLES.items() if set(kinds).intersection(role.concerns))
