"""Who owns a module or a parameter, and under which name."""

from __future__ import annotations

from typing import Any
from weakref import ref


class Owned:
    """What modules hold as attributes: modules and parameters.

    A thing may have several owners, as a shared layer has. They are held weakly, so that neither a copy nor a pickle of
    a part carries the whole; those that have let go of it, or are gone, no longer count.
    """

    _owners: tuple[tuple[ref[Any], str], ...] = ()

    @property
    def path(self) -> str:
        """The names from the outermost module down to this, by way of its first owner, joined by dots.

        Empty for what nobody owns.
        """
        for owner, name in self._holders():
            return f"{above}.{name}" if (above := owner.path) else name
        return ""

    def adopt(self, owner: Any, name: str) -> None:
        """Note that `owner` holds this as its attribute `name`."""
        holders = self._holders()
        if not any(holder is owner and known == name for holder, known in holders):
            holders.append((owner, name))
        self._owners = tuple((ref(holder), known) for holder, known in holders)

    def _holders(self) -> list[tuple[Any, str]]:
        """The owners that still hold this, and under which name, the first one first."""
        owners = ((owner(), name) for owner, name in self._owners)
        return [(owner, name) for owner, name in owners if owner is not None and vars(owner).get(name) is self]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_owners"}
