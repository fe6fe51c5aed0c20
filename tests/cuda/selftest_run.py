"""Run by test_simulator.py: the self-test of a GPU, on a stand-in."""

import sys

from simfloat.__main__ import main
from simfloat.kernels.gpu import threads
from simfloat.tools.selftest import sums
from tests.cuda import simulated, standin

if __name__ == "__main__":
    standin.install()
    threads.launch = simulated.in_a_row
    sums.COUNT, sums.ACCUMULATORS = 2, sums.ACCUMULATORS[::4]
    sys.exit(main(["selftest", "--device", "cuda"]))
