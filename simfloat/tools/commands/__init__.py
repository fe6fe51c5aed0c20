"""The commands of the command line: a file each, and a row here."""

from __future__ import annotations

import argparse
from typing import Protocol

from simfloat.tools.commands import info, round_number, selftest, show, vectors, warmup


class Command(Protocol):
    """The contents of a command's module."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments to its parser."""

    def run(self, options: argparse.Namespace) -> int:
        """Carry out the command; return the exit code."""


#: Every command by its name, in the order of the help.
COMMANDS: dict[str, Command] = {
    "show": show,
    "round": round_number,
    "info": info,
    "warmup": warmup,
    "selftest": selftest,
    "vectors": vectors,
}
