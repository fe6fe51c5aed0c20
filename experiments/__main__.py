"""The command line: python -m experiments list | run NAME [options]."""

from experiments import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()

from experiments.command_line import main  # noqa: E402 (imports take a second, in which Ctrl-C must work)

if __name__ == "__main__":
    main(prog_name="python -m experiments")
