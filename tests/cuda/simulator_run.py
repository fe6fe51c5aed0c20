"""Run by test_simulator.py: what a case gives under numba-cuda's simulator, written to a file."""

import pickle
import sys

import numpy as np

from simfloat.kernels.gpu import threads
from tests.cuda import simulated, standin
from tests.cuda.cases import CASES, results

if __name__ == "__main__":
    path, name = sys.argv[1:]
    standin.install()
    threads.launch = simulated.on_simulator
    with np.errstate(all="ignore"):
        found = results(CASES[name], standin.moved)
    with open(path, "wb") as file:
        pickle.dump(found, file)
