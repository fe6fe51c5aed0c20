"""List the commands of the command line; each is one module."""

from __future__ import annotations

import argparse
from typing import Protocol

from simfloat.tools.commands import check, info, reveal, round_number, selftest, show, vectors, warmup


class Command(Protocol):
    """The contents of the module of a command."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command to its parser."""

    def run(self, options: argparse.Namespace) -> int:
        """Run the command and return the exit code."""


#: The commands by name, in the order of the help.
COMMANDS: dict[str, Command] = {
    "show": show,
    "round": round_number,
    "info": info,
    "warmup": warmup,
    "selftest": selftest,
    "vectors": vectors,
    "check": check,
    "reveal": reveal,
}
