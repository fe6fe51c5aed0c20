"""Comparison of two manifests: which names differ, and which differences are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest
from typing import Any

from simfloat.checks import did_you_mean
from simfloat.train.manifest import BEGUN, CHANGES

#: Names in which two trainings may differ that have the same bits.
IGNORED_NAMES = (BEGUN, CHANGES, "simfloat", "numpy", "numba", "torch", "python", "policy")

#: What Python calls every lambda.
LAMBDA = "<lambda>"


def as_allowed_names(allow: Any) -> tuple[str, ...]:
    """The names that `allow` holds; ValueError for what are none."""
    names = tuple(allow) if isinstance(allow, Iterable) and not isinstance(allow, str) else (allow,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"allow takes names of a manifest, such as ('lr', 'seed'), got {allow!r}.")
    return names


def check_allowed_names(allow: Iterable[str], *manifests: Mapping[str, Any]) -> None:
    """Raise ValueError, with the nearest name, for one that is in no manifest."""
    names = [name for name in dict.fromkeys(chain(*manifests)) if name not in (BEGUN, CHANGES)]
    for name in allow:
        if not any(is_allowed((name,), known_name) for known_name in names):
            hint = did_you_mean(name, [*names, *map(short_name, names)])
            raise ValueError(f"allow names {name!r}, which no manifest has. Names: {', '.join(names)}.{hint}")


def is_allowed(allow: Iterable[str], name: str) -> bool:
    """Whether a name is allowed: as a whole, by the last part of it, or by the first."""
    return any(f".{allowed_name}." in f".{name}." for allowed_name in allow)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names whose values differ, in their order; of a part of another kind its own name alone.

    An observer may be added. Batches of another size hold other numbers. What is a lambda before or now may be the
    same function, which its text does not tell: it is no difference.
    """
    names = [name for name in dict.fromkeys((*before, *now)) if name not in IGNORED_NAMES]
    differ = [name for name in names if _differ(before.get(name, ...), now.get(name, ...))]
    covered = [*["data"] * ("batch_size" in differ), *["observer"] * (before.get("observer") is None)]
    return [
        name for name in differ if name not in covered and not name.startswith(tuple(f"{part}." for part in differ))
    ]


def _differ(before: Any, now: Any) -> bool:
    """Whether two values are known to differ."""
    if isinstance(before, tuple) and isinstance(now, tuple) and len(before) == len(now):
        return any(map(_differ, before, now))
    if isinstance(before, str) and isinstance(now, str):
        lines = zip_longest(before.split("\n"), now.split("\n"), fillvalue="")
        return any(old != new and LAMBDA not in old + new for old, new in lines)
    return bool(before != now)


def list_differences(names: Iterable[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences, a line each with both values, and how to go on in spite of them."""
    parts = list(dict.fromkeys(map(short_name, names)))
    policy = ["policy"] * ("policy" in parts and before.get("policy") != now["policy"])
    lines = [f"  {name}: {_both_values_text(before.get(name, ...), now.get(name, ...))}" for name in (*policy, *names)]
    advice = f"Resume it with what it was made with; or go on with what is given now, by allow={parts}."
    return "\n".join([*lines, advice])


def short_name(name: str) -> str:
    """Return the name that `allow` has for an entry: an option's own for optimizer and scaler, else its part's."""
    part, _, option = name.partition(".")
    return option if part in ("optimizer", "scaler") and option else part


def _both_values_text(before: Any, now: Any) -> str:
    """Two values beside each other; of several lines, or of several batches, the first that differ."""
    if isinstance(before, list) and isinstance(now, list):
        number = next(i for i, (old, new) in enumerate(zip_longest(before, now)) if old != new)
        return f"batch {number} holds other numbers"
    if isinstance(before, str) and isinstance(now, str):
        lines = zip_longest(before.split("\n"), now.split("\n"), fillvalue="nothing")
        before, now = next((old.strip(), new.strip()) for old, new in lines if old != new)
    before, now = ("not given" if value is ... else str(value).partition("\n")[0] for value in (before, now))
    return f"{before}, now {now}"
