# PYTHON_ARGCOMPLETE_OK
"""Run the command line: simfloat show | round | info | warmup | selftest | vectors | check | reveal | --version."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import simfloat as sf
from simfloat.terminal import Parser, end_program, run_command, shield_negative_numbers
from simfloat.tools.commands import COMMANDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 for success, 2 for invalid arguments, 130 for an interrupt."""
    return run_command(lambda: carry_out(sys.argv[1:] if arguments is None else arguments))


def carry_out(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name."""
    all_commands = parser()
    complete_words(all_commands)
    try:
        options = all_commands.parse_args(shield_negative_numbers(arguments))
    except SystemExit as end:  # invalid arguments, or --help or --version
        return int(end.code or 0)
    return COMMANDS[options.command].run(options)


def complete_words(parser: Parser) -> None:
    """Answer a shell that asks for completions, if argcomplete is installed (the extra `completion`)."""
    if "_ARGCOMPLETE" in os.environ:
        try:
            from argcomplete import autocomplete
        except ImportError:
            return
        autocomplete(parser)


def parser() -> Parser:
    """Return the parser of the commands and their options."""
    parser = Parser("simfloat", description="Narrow floating-point arithmetic, bit for bit.")
    parser.add_argument("--version", action="version", version=f"simfloat {sf.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        description = command.HELP[0].upper() + command.HELP[1:]
        command.add_arguments(commands.add_parser(name, help=command.HELP, description=description))
    return parser


def program() -> NoReturn:
    """Run the command of the program's arguments, and end the program."""
    end_program(main())


if __name__ == "__main__":
    program()
