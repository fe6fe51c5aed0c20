"""What every test may use."""

import numpy as np
import pytest

from simfloat.kernels import notice

# Tests look at what is said on standard error; how long kernels take to compile is no part of it.
notice.silence()


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture
def ml_dtypes():
    return pytest.importorskip("ml_dtypes", reason="needs ml_dtypes as an oracle")


@pytest.fixture
def gmpy2():
    return pytest.importorskip("gmpy2", reason="needs gmpy2 (MPFR) as an oracle")


@pytest.fixture
def gfloat():
    pytest.importorskip("gfloat.formats", reason="needs gfloat as an oracle")
    return pytest.importorskip("gfloat")


@pytest.fixture
def apytypes():
    return pytest.importorskip("apytypes", reason="needs apytypes as an oracle")
