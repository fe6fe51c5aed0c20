"""Run random programs, and print a small program for every disagreement: python -m tests.properties --help."""

import argparse
import time
import warnings


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.properties", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000, help="how many programs (1000)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first program (0)")
    parser.add_argument("--most", type=int, default=10, help="after so many disagreements it ends (10)")
    parser.add_argument("--stand-in", action="store_true", help="repeat calls of new kinds on what stands for a GPU")
    given = parser.parse_args()
    if given.stand_in:
        from tests.cuda import devices, shadow

        shadow.install(shadow.Shadow(devices.StandIn(most_steps=250)))
    from tests.properties.compared import disagreement
    from tests.properties.programs import random_program, shrunk

    warnings.simplefilter("ignore")
    found, start = 0, time.process_time()
    for seed in range(given.seed, given.seed + given.programs):
        program = random_program(seed)
        what = disagreement(program)
        if what is not None:
            kind = what.split(":")[0]
            small = shrunk(program, lambda one, kind=kind: (disagreement(one) or "").startswith(kind))
            print(f"--- seed {seed}: {what}\n{small}\n{disagreement(small)}\n", flush=True)
            found += 1
            if found == given.most:
                break
    print(f"{seed + 1 - given.seed} programs, {found} disagreements, {time.process_time() - start:.0f} s")
    return found != 0


if __name__ == "__main__":
    raise SystemExit(main())
