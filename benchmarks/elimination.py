"""LU factorization of order 1000 on one thread, as ratios to LAPACK in float32."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, giga, seconds, threads

ORDER = 1000

#: LAPACK on one thread, in another process: the number of its threads is fixed when SciPy is imported.
LAPACK = f"""
import time
import numpy as np
from scipy.linalg import lu_factor
from benchmarks.measure import seconds
a = np.random.default_rng(0).standard_normal(({ORDER}, {ORDER})).astype(np.float32)
print(seconds(lambda: lu_factor(a, check_finite=False), clock=time.process_time))
"""


def rows() -> Iterator[Row]:
    """Yield a row for each format and each order of sums."""
    single = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", LAPACK], env={**os.environ, **single}, check=True, capture_output=True)
    lapack, work = float(done.stdout), ORDER**3 / 3
    yield Row("LAPACK float32", giga(work, lapack))
    orders = {"": None, ", products rounded": sf.sequential(sf.BF16, products=sf.BF16), ", sums in FP32": sf.FP32}
    cases = [(sf.BF16, what, order) for what, order in orders.items()] + [(sf.FP16, "", None), (sf.FP32, "", None)]
    for format, what, order in cases:
        matrix = sf.array(np.random.default_rng(0).standard_normal((ORDER, ORDER)), format, accumulate=order)
        with threads(1):
            taken = seconds(lambda matrix=matrix: sf.linalg.lu(matrix), clock=time.thread_time)
        yield Row(
            f"{format}{what}",
            giga(work, taken),
            f"{taken / lapack:.1f} times LAPACK's time",
            "" if what else "<= 20 times",
        )
