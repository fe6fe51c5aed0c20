"""Names of formats: accepted names, and printed names that are read back."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.catalog import DTYPES
from tests.bits import FORMATS

NAMES = [None, "mine", "E4M3", "bf16", "half", "e4m3", "e5m10", "Format(4, 3)", "Binary8p4se", "", 'it\'s "x"', "日"]


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_format_is_read_back_for_any_name(name):
    options = ("bias", "special", "subnormals", "tininess", "signed")
    for format in [*FORMATS, sf.Format(4, 3), sf.Format(3, 2), sf.Format(5, 10, bias=3)]:
        fields = {option: getattr(format, option) for option in options}
        named = sf.Format(format.exponent_bits, format.mantissa_bits, name=name, **fields)
        assert sf.as_format(str(named)) == sf.as_format(repr(named)) == named, str(named)
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


def test_the_name_of_a_dtype_may_be_shortened():
    shortened = {"e4m3fn": sf.E4M3, "E8M0FNU": sf.E8M0, "e3m2fn": sf.E3M2, "e2m3fn": sf.E2M3, "e2m1fn": sf.E2M1}
    assert all(sf.as_format(name) is format for name, format in shortened.items())


@pytest.mark.parametrize(
    "format, names",
    [(sf.E4M3, "F8_E4M3 torch.float8_e4m3fn FLOAT8E4M3FN f8E4M3FN fp8e4nv float8e4nv fp8_e4m3 ocp_e4m3 float_e4m3_t"),
     (sf.E5M2, "F8_E5M2 FLOAT8E5M2 f8E5M2 fp8e5 fp8_e5m2 ocp_e5m2"),
     (sf.E4M3FNUZ, "FLOAT8E4M3FNUZ f8E4M3FNUZ fp8e4b8"), (sf.E5M2FNUZ, "FLOAT8E5M2FNUZ f8E5M2FNUZ fp8e5b16"),
     (sf.E8M0, "F8_E8M0 FLOAT8E8M0 f8E8M0FNU ocp_e8m0"), (sf.E3M2, "F6_E3M2 f6E3M2FN ocp_e3m2"),
     (sf.E2M3, "F6_E2M3 f6E2M3FN ocp_e2m3"), (sf.E2M1, "F4 FLOAT4E2M1 f4E2M1FN ocp_e2m1"),
     (sf.BF16, "bf16 BFLOAT16"), (sf.FP16, "F16 FLOAT16 f16 binary16"), (sf.FP32, "F32 f32 binary32"),
     (sf.FP64, "F64 DOUBLE f64 binary64"), (sf.p3109(8, 3), "p3109_k8p3se Binary8p3se"),
     (sf.fixed(8, 6, symmetric=False), "ocp_int8")],
    ids=str,
)  # fmt: skip
def test_names_in_files_and_compilers_are_read_in_any_case(format, names):
    for name in names.split():
        assert sf.as_format(name) == sf.as_format(name.lower()) == sf.as_format(name.upper()) == format, name


@pytest.mark.parametrize("name", ["fp8_e4m3x", "f8-e4m3", "float8_e4m3_fn", "FP8 E4M3", "float8e4m3", "f8e4m3"])
def test_a_name_like_e4m3_is_never_answered_first_with_a_format_that_has_infinities(name):
    with pytest.raises(ValueError, match=r"(Nearest names: |OCP's )E4M3\b(?!_)"):
        sf.as_format(name)


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
def test_unknown_names_are_refused(x):
    with pytest.raises(ValueError, match="[Ff]ormat"):
        sf.as_format(x)


@pytest.mark.parametrize(
    "name, words",
    [("posit16", r"Posits and takums are not supported: .* FP16, BF16"),
     ("int1", r"fixed-point numbers of 2 to 54 bits: sf\.fixed\(8\)"),
     ("int64", r"fixed-point numbers of 2 to 54 bits: sf\.fixed\(8\)"),
     ("f8E4M3", r"OCP's E4M3, to 448, is f8E4M3FN in MLIR, .*has infinities and is E4M3_IEEE"),
     ("float", r"FP32 in C, PyTorch and ONNX, and FP64 in Python"),
     ("bfp16", r"sf\.cast\(sf\.fixed\(8, 6\), scale=sf\.block\(16, sf\.E8M0\)\)"),
     ("nf4", r"a table of 16 numbers. .* E2M1 and sf\.fixed\(4\)"),
     ("ue4m3", r"sf\.Format\(4, 3, signed=False\), with special='fn'"), ("hf8", "HF8 is E4M3"),
     ("int8", r"sf\.fixed\(8\) is -127 to 127"),
     (np.dtype(np.int16), r"sf\.fixed\(16\) is -32767 to 32767, .*symmetric=False\) has -32768"),
     ("uint8", r"sf\.fixed\(8, signed=False\) is 0 to 255"),
     ("MXFP4", r"sf\.cast\(sf\.E2M1, scale=sf\.block\(32, sf\.E8M0\)\)"),
     ("nvfp4", r"scale=sf\.block\(16, sf\.E4M3\)"),
     ("MXINT8", r"sf\.cast\(sf\.fixed\(8, 6\), scale=sf\.block\(32, sf\.E8M0\)\)"),
     ("fp8", "E4M3 .* or E5M2 .*; say which"), ("lns8", "powers of two: E8M0"),
     ("float128", "FP64 is the widest format"), ("kahan", r"kahan is an order of sums, .*: sf\.kahan\(sf\.FP32\)"),
     ("blocked", r"sf\.blocked\(32, sf\.FP16, sf\.FP32\)"), ("fused", r"sf\.fused\(terms=16, fraction_bits=25\)"),
     ("tensor_core", r"sf\.tensor_core\('hopper'\)"), ("matrix_core", r"sf\.matrix_core\('cdna3', sf\.FP16\)"),
     ("exact", r"is sf\.exact"),
     ("banana", r"There are FP64, FP32, .* sf\.Format\(exponent_bits, mantissa_bits\); or write e5m10"),
     ("fp24", r"sf\.Format\(exponent_bits, mantissa_bits\)\.$"), ("decimal32", "has base 2"), ("ibm32", "has base 2"),
     ("bf17", "Nearest names: BF16; or write e5m10")],
)  # fmt: skip
def test_an_unknown_format_is_answered_with_what_there_is_and_no_wrong_name(name, words):
    with pytest.raises(ValueError, match=words) as error:
        sf.as_format(name)
    assert "single" not in str(error.value) and ("Nearest" in str(error.value)) == (name == "bf17")


@pytest.mark.parametrize("bits, fraction_bits", [(2, 0), (4, 0), (8, 0), (8, 6), (16, -3), (16, 8)])
def test_fixed_point_numbers_are_integers_of_a_unit(bits, fraction_bits, rng):
    format = sf.fixed(bits, fraction_bits)
    most, unit = 2 ** (bits - 1) - 1, 2.0**-fraction_bits
    assert format.bits == bits and format.values().tolist() == (np.arange(-most, most + 1) * unit).tolist()
    x = rng.uniform(-1.5, 1.5, 2000) * most * unit
    x[:100] = (rng.integers(-most - 2, most + 2, 100) + 0.5) * unit
    want = np.clip(np.rint(x / unit), -most, most) * unit  # rint takes ties to the even integer
    assert np.array_equal(sf.round(x, format), want)
    assert sf.as_format(str(format)) == sf.as_format(repr(format)) == format
    assert sf.as_format(str(format)).name == format.name and sf.Policy.from_dict({"compute": str(format)})


def test_a_sum_of_integers_is_theirs_up_to_float64s_bits():
    x = np.arange(-127.0, 128.0)
    assert sf.dot(x, x, inputs=sf.fixed(8), accumulate=sf.fixed(32)) == float(np.sum(x * x))
    for wrong in ((1,), (0,), (8.0,), (True,), (8, 0.5), (60,)):
        with pytest.raises(ValueError, match="bits|float64"):
            sf.fixed(*wrong)


def test_pickles_hold_fields_and_no_hash_and_policies_keep_formats_as_text():
    for format in [*FORMATS, sf.Format(4, 3), sf.Format(3, 2, name="mine"), sf.Format(4, 3, name="E4M3")]:
        again = eval(repr(format), {"Format": sf.Format})
        assert again == format and hash(again) == hash(format) and repr(again) == repr(format)
        assert set(format.__getstate__()) >= {"bias", "name"} and "_hash" not in format.__getstate__()
        copy = pickle.loads(pickle.dumps(format))
        assert copy == format and copy.name == format.name and hash(copy) == hash(format)
        policy = sf.Policy(compute=sf.BF16, activations=format, gradients=format)
        assert sf.Policy.from_dict(policy.to_dict()) == policy


@pytest.mark.parametrize("name", ["V2", "|V1", np.dtype("V2"), np.void])
def test_bytes_that_np_load_returns_are_no_format(name):
    with pytest.raises(ValueError, match=r"bytes without a meaning.*simfloat\.decode\(array, simfloat\.BF16\) for V2"):
        sf.as_format(name)
