"""Paths of modules and parameters, by weak links to their owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import ref


class Owned:
    """What modules hold as attributes: modules and parameters.

    A part may have several owners, as a shared layer has; its path is by way of the first of those that hold it now.
    Links are weak, so that neither a copy nor a pickle of a part carries the whole model.
    """

    _owners: tuple[tuple[ref[Any], str], ...] = ()

    @property
    def path(self) -> str:
        """The names from the outermost module down to this, by way of its first owner, joined by dots.

        Empty for what has no owner.
        """
        for owner, name in self._holders():
            return f"{above}.{name}" if (above := owner.path) else name
        return ""

    def _attach(self, owner: Any, name: str) -> None:
        """Note that `owner` holds this as its attribute `name`."""
        alive = tuple((holder, its_name) for holder, its_name in self._owners if holder() is not None)
        if not any(holder() is owner and its_name == name for holder, its_name in alive):
            alive += ((ref(owner), name),)
        self._owners = alive

    def _holders(self) -> Iterator[tuple[Any, str]]:
        """The owners that hold this now, and under which name, the first one first."""
        for holder, name in self._owners:
            owner = holder()
            if owner is not None and vars(owner).get(name) is self:
                yield owner, name

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_owners"}


def outermost_owner(part: Any) -> Any:
    """The module at which the part's path begins; None for what has no owner."""
    for owner, _ in part._holders():
        return outermost_owner(owner) if owner.path else owner
    return None
