"""finfo: the fields of numpy.finfo."""

import numpy as np
import pytest

import simfloat as sf

FIELDS = [
    *("bits", "eps", "epsneg", "iexp", "machep", "max", "maxexp", "min", "minexp", "negep", "nexp", "nmant"),
    *("precision", "resolution", "tiny", "smallest_normal", "smallest_subnormal"),
]


def assert_same(ours, theirs):
    assert list(ours._fields) == FIELDS
    assert {key: getattr(ours, key) for key in FIELDS} == {key: float(getattr(theirs, key)) for key in FIELDS}


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_are_those_of_numpy(name):
    assert_same(sf.finfo(name), np.finfo(name))


def test_limits_are_those_of_ml_dtypes(ml_dtypes):
    for name in [name for name in dir(ml_dtypes) if "float" in name and isinstance(getattr(ml_dtypes, name), type)]:
        assert_same(sf.finfo(name), ml_dtypes.finfo(getattr(ml_dtypes, name)))


def test_limits_of_a_format_of_ones_own():
    limits = sf.finfo(sf.Format(4, 3, bias=9, subnormals=False))
    assert limits.minexp == -8 and limits.smallest_subnormal == limits.tiny == 2.0**-8
    assert limits.epsneg == 1 - 0.9375
