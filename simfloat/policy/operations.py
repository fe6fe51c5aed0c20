"""The operations of a training step, by the class of arithmetic that they are."""

from __future__ import annotations

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
    known = [*CLASS_OF, *COMPOSITE, *CLASSES]
    if name not in known:
        from difflib import get_close_matches  # only a mistake needs it

        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"Unknown operation {name!r}. Operations: {', '.join(sorted(known))}.{hint}")
