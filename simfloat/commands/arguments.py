"""Reading command lines: mistakes are one line, and negative numbers are numbers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

#: What begins like an option and is a number: argparse knows -1 and -1.5, but neither -1e-5 nor -inf nor -1/3.
NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Leave with the message."""
        self.exit(2, f"{self.prog}: {message}\n")


def shielded(arguments: Sequence[str]) -> list[str]:
    """The arguments, with a space before negative numbers, so that they are not taken for options."""
    return [f" {argument}" if NEGATIVE.match(argument) else argument for argument in arguments]


def reading(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type of arguments whose ValueError is the message."""

    def typed(text: str) -> Any:
        try:
            return read(text.strip())
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed
