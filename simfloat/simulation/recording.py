"""Whether operations are recorded for backward."""

from __future__ import annotations

from contextlib import ContextDecorator

from simfloat.simulation.context import close_block, open_block, under_way


class no_grad(ContextDecorator):
    """A ``with`` block, or a decorator ``@no_grad()``, under which operations are not recorded for backward."""

    def __enter__(self) -> None:
        open_block(self, "recording", False)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        close_block(self, kind)

    def __repr__(self) -> str:
        return "no_grad()"


def is_recording() -> bool:
    """Whether operations are recorded for backward."""
    return under_way().recording
