"""The command line: python -m experiments list | run NAME [options]."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from experiments import interrupts

#: The packages of simfloat's extra `experiments`, with the names to import.
IMPORTED = {
    "matplotlib": "matplotlib",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "click": "click",
    "rich": "rich",
    "jinja2": "jinja2",
    "pyarrow": "pyarrow",
    "cloudpickle": "cloudpickle",
}


def main() -> int:
    """Run a command, which ends the program with its exit code. Return 2 if packages are missing."""
    interrupts.end_at_once()  # the imports take a second, in which Ctrl-C must work
    if packages := [package for package, name in IMPORTED.items() if find_spec(name) is None]:
        print(f"The experiments need {', '.join(packages)}: pip install 'simfloat[experiments]'", file=sys.stderr)
        return 2
    from experiments import command_line

    return command_line.main(prog_name="python -m experiments")


if __name__ == "__main__":
    raise SystemExit(main())
