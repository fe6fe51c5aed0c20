"""Names of formats: what is read, and that what is printed is read back."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.names import DTYPES
from tests.bits import FORMATS

NAMES = [None, "mine", "E4M3", "bf16", "half", "e4m3", "e5m10", "Format(4, 3)", "Binary8p4se", "", 'it\'s "x"', "日"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_format_prints_is_read_back_whatever_its_name(name):
    for format in [*FORMATS, sf.Format(4, 3), sf.Format(3, 2), sf.Format(5, 10, bias=3)]:
        named = sf.Format(
            format.exponent_bits,
            format.mantissa_bits,
            bias=format.bias,
            special=format.special,
            subnormals=format.subnormals,
            tininess=format.tininess,
            signed=format.signed,
            name=name,
        )
        assert sf.as_format(str(named)) == named, str(named)
        assert sf.as_format(repr(named)) == named
    assert str(sf.Format(5, 10, name="half")) == "half" and str(sf.Format(4, 3)) == "Format(4, 3)"


def test_dtypes_of_numpy_and_their_names():
    for dtype, format in [("float16", sf.FP16), ("float32", sf.FP32), ("float64", sf.FP64)]:
        assert sf.as_format(dtype) is sf.as_format(np.dtype(dtype)) is sf.as_format(getattr(np, dtype)) is format
    assert sf.as_format(np.dtype(">f4")) is sf.FP32
    assert [sf.as_format(name) for name in ("half", "single", "double")] == [sf.FP16, sf.FP32, sf.FP64]


def test_dtypes_of_ml_dtypes_and_their_names(ml_dtypes):
    names = [name for name in dir(ml_dtypes) if "float" in name and isinstance(getattr(ml_dtypes, name), type)]
    assert len(names) > 10
    for name in names:
        dtype = getattr(ml_dtypes, name)
        assert sf.as_format(dtype) is sf.as_format(np.dtype(dtype)) is sf.as_format(name) is DTYPES[name]


def test_a_dtypes_name_may_be_shortened_to_the_text_that_tells_its_specials():
    shortened = {"e4m3fn": sf.E4M3, "E8M0FNU": sf.E8M0, "e3m2fn": sf.E3M2, "e2m3fn": sf.E2M3, "e2m1fn": sf.E2M1}
    assert all(sf.as_format(name) is format for name, format in shortened.items())


def test_dtypes_of_pytorch():
    torch = pytest.importorskip("torch", reason="needs PyTorch for its dtypes")
    dtypes = {str(v) for v in vars(torch).values() if isinstance(v, torch.dtype) and v.is_floating_point}
    for dtype in dtypes:
        name = dtype.removeprefix("torch.")
        assert sf.as_format(getattr(torch, name)) is DTYPES[name]


def test_reading_a_name_imports_neither_ml_dtypes_nor_torch():
    code = "import sys, simfloat as sf; sf.as_format('half'); assert not {'torch', 'ml_dtypes'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "x", [16, int, np.dtype(np.int8), "int8", "fp17", "Format(", "Format(4)", "Format(print(1), 2)", "e٣m٢", None]
)
def test_what_names_no_format_is_refused(x):
    with pytest.raises(ValueError, match="[Ff]ormat"):
        sf.as_format(x)


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_pickles_hold_fields_and_no_hash(format):
    hash(format), format.max
    assert set(format.__getstate__()) >= {"bias", "name"} and "_hash" not in format.__getstate__()
    assert hash(pickle.loads(pickle.dumps(format))) == hash(format)


@pytest.mark.parametrize(
    "format", [*FORMATS, sf.Format(4, 3), sf.Format(3, 2, name="mine"), sf.Format(4, 3, name="E4M3")]
)
def test_a_policy_keeps_its_formats_as_text(format):
    policy = sf.Policy(compute=sf.BF16, activations=format, gradients=format)
    assert sf.Policy.from_dict(policy.to_dict()) == policy
