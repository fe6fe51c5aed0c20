"""The operations that an override can name, and the roles that matter to each."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from simfloat.policy.roles import MOVEMENT, POINTWISE, REDUCTION, ROLES, UPDATE

#: Micikevicius et al. 2018, section 3.3: vector dot products, large reductions, and point-wise operations.
CLASSES = {
    "contraction": ("matmul", "linear"),
    "reduction": ("sum", "mean", "max"),
    "pointwise": (
        *("add", "subtract", "multiply", "divide", "negative", "abs", "relu"),
        *("sqrt", "exp", "log", "log2", "tanh", "sigmoid", "sin", "cos", "erf"),
        *("reciprocal", "rsqrt", "power"),
    ),
}

#: Operations that are made of others; an override for one holds for all that happens inside.
COMPOSITE = ("softmax", "log_softmax", "mse_loss", "cross_entropy")

CLASS_OF = {name: kind for kind, names in CLASSES.items() for name in names}


def check_operation(name: str) -> None:
    """Raise ValueError unless `name` is an operation, a composite or a class of operations."""
    known = [*CLASS_OF, *COMPOSITE, *CLASSES, UPDATE]
    if name not in known:
        raise ValueError(f"Unknown operation {name!r}. Operations: {', '.join(sorted(known))}.{nearest(name, known)}")


def with_classes(operations: Iterable[str]) -> tuple[str, ...]:
    """The names of operations, and of the classes that they are of."""
    names = tuple(operations)
    return (*names, *(CLASS_OF[name] for name in names if name in CLASS_OF))


def roles_of(operation: str) -> tuple[str, ...]:
    """The roles that matter to an operation, or to one of a class or inside a composite."""
    kind = CLASS_OF.get(operation, operation)
    kinds = {POINTWISE, REDUCTION, MOVEMENT} if kind in COMPOSITE else {kind}
    return tuple(name for name, role in ROLES.items() if kinds.intersection(role.concerns))


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint at the known name that is most like this one; empty where none is."""
    near = get_close_matches(str(name), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
