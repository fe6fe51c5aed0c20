"""Real data that comes inside the scikit-learn package.

The files are read directly: importing scikit-learn in every worker would take longer than the training.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def _read(name: str, delimiter: str | None) -> NDArray[np.float64]:
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ValueError("The data sets come with scikit-learn; install simfloat[experiments].")
    path = Path(package.origin).parent / "datasets" / "data" / name
    if not path.exists():
        raise ValueError(f"scikit-learn has no file {path}; install a release from 1.5 on.")
    return np.loadtxt(path, delimiter=delimiter)


@cache
def diabetes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ten standardised measurements of 442 patients, and the progress of the disease (Efron et al. 2004)."""
    x, y = _read("diabetes_data_raw.csv.gz", None), _read("diabetes_target.csv.gz", None)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


@cache
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """1797 images of handwritten digits as 64 grey values from 0 to 1, and the digits (Alpaydin and Kaynak 1998)."""
    rows = _read("digits.csv.gz", ",")
    return rows[:, :-1] / 16, rows[:, -1].astype(np.int64)
