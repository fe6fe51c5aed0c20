"""Run by test_simulator.py: the self-test of a GPU, with what stands for one."""

import sys

from simfloat.__main__ import main
from simfloat.cuda import thread_loops
from simfloat.selftest import gpu_checks
from tests.cuda import simulated, standin

if __name__ == "__main__":
    standin.install()
    thread_loops.launch = simulated.in_a_row
    gpu_checks.COUNT, gpu_checks.ACCUMULATORS = 6, gpu_checks.ACCUMULATORS[::3]
    sys.exit(main(["selftest", "--device", "cuda"]))
