"""Run by test_simulator.py: store the results of cases under numba-cuda's simulator, and run a GPU's self-test."""

import pickle
import sys

import numpy as np

from simfloat.__main__ import main
from simfloat.kernels.gpu import threads
from simfloat.tools.selftest import sums
from tests.cuda import simulated, standin
from tests.cuda.cases import CASES, results

if __name__ == "__main__":
    path, *names = sys.argv[1:]
    standin.install()
    threads.launch = simulated.on_simulator
    with np.errstate(all="ignore"):
        found = [results(CASES[name], standin.moved) for name in names]
    with open(path, "wb") as file:
        pickle.dump(found, file)
    threads.launch = simulated.in_a_row
    sums.COUNT, sums.ACCUMULATORS = 2, sums.ACCUMULATORS[::9]
    sys.exit(main(["selftest", "--device", "cuda"]))
