"""The formats that have names, and the names that users may write.

Names come from the catalog, from P3109, from the dtypes of other packages, and from texts that describe a format. For
names that are not formats, such as posits, MXFP4 and accumulators, the error suggests an alternative.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from simfloat.common import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats.format import NAMED, Format, read_format
from simfloat.formats.text import fixed_arguments, p3109_arguments

FP64 = Format(11, 52, name="FP64")
FP32 = Format(8, 23, name="FP32")
TF32 = Format(8, 10, name="TF32")
BF16 = Format(8, 7, name="BF16")
FP16 = Format(5, 10, name="FP16")

# OCP 8-bit Floating Point Specification (OFP8) 1.0
E5M2 = Format(5, 2, name="E5M2")
E4M3 = Format(4, 3, special="fn", name="E4M3")

# IEEE-like 8-bit formats of ml_dtypes
E3M4 = Format(3, 4, name="E3M4")
E4M3_IEEE = Format(4, 3, name="E4M3_IEEE")

# Noune et al. 2022, arXiv 2206.02915; the bias of 11 is Google's
E5M2FNUZ = Format(5, 2, special="fnuz", name="E5M2FNUZ")
E4M3FNUZ = Format(4, 3, special="fnuz", name="E4M3FNUZ")
E4M3B11FNUZ = Format(4, 3, bias=11, special="fnuz", name="E4M3B11FNUZ")

# OCP Microscaling Formats (MX) 1.0
E3M2 = Format(3, 2, special="finite", name="E3M2")
E2M3 = Format(2, 3, special="finite", name="E2M3")
E2M1 = Format(2, 1, special="finite", name="E2M1")
E8M0 = Format(8, 0, bias=127, special="scale", subnormals=False, signed=False, name="E8M0")

#: Every format above by its name.
CATALOG: dict[str, Format] = {name: value for name, value in list(globals().items()) if isinstance(value, Format)}
NAMED.update((name.lower(), format) for name, format in CATALOG.items())

if not TYPE_CHECKING:  # type checkers find the names above without it
    __all__ = ["CATALOG", *CATALOG]


#: Patterns of lower-case names, each with an alternative; `bits` of an integer gives the ends of its range.
ADVICE_BY_PATTERN = {
    r"(?:posit|takum).*": "Posits and takums are not supported: their precision depends on the value. Formats of the "
    "same widths are FP16, BF16, E4M3, E5M2 and sf.p3109(bits, precision)",
    r"mxfp4|mx4": "MXFP4 is E2M1 in blocks with scales: sf.cast(sf.E2M1, scale=sf.block(32, sf.E8M0)), or the policy "
    "'mxfp4'",
    r"nvfp4": "NVFP4 is E2M1 in blocks with scales: sf.cast(sf.E2M1, scale=sf.block(16, sf.E4M3)), or the policy "
    "'nvfp4'",
    r"mxfp6|mx6": "MXFP6 is E3M2 or E2M3 in blocks with scales: sf.cast(sf.E2M3, scale=sf.block(32, sf.E8M0))",
    r"mxfp8|mx8|mx9": "MXFP8 is E4M3 or E5M2 in blocks with scales: sf.cast(sf.E4M3, scale=sf.block(32, sf.E8M0)), or "
    "the policy 'mxfp8'",
    r"mxint8": "MXINT8 is sf.fixed(8, 6) in blocks with scales: sf.cast(sf.fixed(8, 6), scale=sf.block(32, sf.E8M0))",
    r"(?:bfp|msfp)\d*": "Block floating point is fixed-point numbers in blocks with scales: sf.cast(sf.fixed(8, 6), "
    "scale=sf.block(16, sf.E8M0))",
    r"(?:nf|normalfloat)4": "NF4 is not supported: it is a table of 16 numbers. Formats of four bits are E2M1 and "
    "sf.fixed(4)",
    r"(?:fp|float)8": "FP8 is E4M3 (to 448, for weights and activations) or E5M2 (to 57344, for gradients); say which",
    r"f(?:loat)?8e4m3": "OCP's E4M3, to 448, is f8E4M3FN in MLIR, and E4M3 here; MLIR's f8E4M3 has infinities and is "
    "E4M3_IEEE",
    r"float": "float is FP32 in C, PyTorch and ONNX, and FP64 in Python and NumPy; say which",
    r"f80|f128": "FP64 is the widest format",
    r"bf8|hf8": "BF8 is E5M2, and HF8 is E4M3",
    r"ue8m0": "UE8M0 is E8M0",
    r"ue(?P<exponent>[1-8])m(?P<mantissa>\d)": "A format without a sign is sf.Format({exponent}, {mantissa}, "
    "signed=False), with special='fn' if it has NaN and no infinity",
    r"(?:fp|float)6": "FP6 is E3M2 (to 28) or E2M3 (to 7.5); say which",
    r"(?:fp|float)4": "FP4 is E2M1",
    r"(?:fp|float)(?:9|[1-4]\d)": "A format of another width is sf.Format(exponent_bits, mantissa_bits)",
    r"(?:dec|decimal|ibm|hfp)\d+": "A Format has base 2: decimal and hexadecimal formats are not supported",
    r"(?:lns|log).*": "Logarithmic numbers are supported with integer exponents only, which are powers of two: E8M0, "
    "or sf.Format(5, 0, special='fn') with signs and zero",
    r"(?:int|i|s)(?P<bits>[2-9]|[1-4]\d|5[0-3])": "Integers are fixed-point numbers: sf.fixed({bits}) is -{most} to "
    "{most}, and sf.fixed({bits}, symmetric=False) has -{lowest} as well",
    r"(?:uint|u|ui)(?P<bits>[1-9]|[1-4]\d|5[0-3])": "Integers are fixed-point numbers: sf.fixed({bits}, signed=False) "
    "is 0 to {mask}",
    r"(?:uint|ui|u|int|i|s)\d{1,2}|int|uint|integer": "Integers are fixed-point numbers of 2 to 54 bits: sf.fixed(8) "
    "is -127 to 127, sf.fixed(8, signed=False) 0 to 255",
    r"(?:fp|float|binary)(?:80|96|128|256)|longdouble|quad.*": "FP64 is the widest format",
    r"(?P<order>kahan|pairwise|sequential)": "{order} is an order of sums, made with a format: sf.{order}(sf.FP32)",
    r"blocked": "blocked is an order of sums, made with a length and two formats: sf.blocked(32, sf.FP16, sf.FP32)",
    r"fused": "fused is an order of sums, made with numbers of a unit: sf.fused(terms=16, fraction_bits=25)",
    r"tensor_?core": "A tensor core is named by its architecture: sf.tensor_core('hopper')",
    r"matrix_?core": "A matrix core is named by its architecture and inputs: sf.matrix_core('cdna3', sf.FP16)",
    r"exact": "The accumulator of that name is sf.exact",
    r"q43|q52": "chop's q43 is E4M3_IEEE, up to 240 (E4M3, of OCP, is up to 448), and its q52 is E5M2",
    r"(?:fixed|q)[\d.(]+.*": "Fixed-point numbers are sf.fixed(bits, fraction_bits), with signed=False or "
    "symmetric=False if need be",
}


def advice_for(name: str) -> str | None:
    """Return an alternative to a name that is not a format; None for any other name."""
    for pattern, answer in ADVICE_BY_PATTERN.items():
        if match := re.fullmatch(pattern, name.lower()):
            groups = match.groupdict()
            lowest = 2 ** (int(groups.get("bits", 1)) - 1)
            return answer.format(**groups, most=lowest - 1, lowest=lowest, mask=2 * lowest - 1)
    return None


#: The types that `as_format` reads; PyTorch's dtypes are accepted as well.
FormatLike: TypeAlias = Format | str | np.dtype | type[Any]

#: The key of the format in the metadata of an array's dtype. Packages such as xarray pass this dtype to `astype`.
FORMAT_IN_DTYPE = "format"

#: The dtypes of NumPy, ml_dtypes and PyTorch, by their names.
DTYPES: dict[str, Format] = {
    **{"float64": FP64, "double": FP64, "float32": FP32, "single": FP32, "float16": FP16, "half": FP16},
    **{"bfloat16": BF16, "float8_e5m2": E5M2, "float8_e4m3fn": E4M3, "float8_e3m4": E3M4, "float8_e4m3": E4M3_IEEE},
    **{"float8_e5m2fnuz": E5M2FNUZ, "float8_e4m3fnuz": E4M3FNUZ, "float8_e4m3b11fnuz": E4M3B11FNUZ},
    **{"float8_e8m0fnu": E8M0, "float6_e3m2fn": E3M2, "float6_e2m3fn": E2M3, "float4_e2m1fn": E2M1},
    "float4_e2m1fn_x2": E2M1,  # PyTorch's, two in a byte
}
NAMED.update(DTYPES)
# The short form ``e4m3fn``; without the letters at the end, the text means an IEEE format.
NAMED.update({name.partition("_")[2]: format for name, format in DTYPES.items() if name.endswith(("fn", "fnu"))})


@in_usual_environment
def p3109(bits: int, precision: int, signed: bool = True, extended: bool = True) -> Format:
    """Return the IEEE P3109 format Binary{bits}p{precision}.

    Parameters:
        bits: the width of a code.
        precision: the number of bits of the significand, including the hidden one.
        signed: False for an unsigned format.
        extended: False for a finite format, without infinities.

    Returns:
        The format.

    Raises:
        ValueError: if an argument is invalid, or if no exponent bit is left.

    Source: P3109 interim report 4.0 (2026).

    Examples:
        >>> sf.p3109(8, 3)
        Format(5, 2, special='p3109', name='Binary8p3se')
        >>> sf.p3109(8, 3).max
        49152.0
    """
    _check_integers(bits=bits, precision=precision)
    _check_booleans(signed=signed, extended=extended)
    arguments = p3109_arguments(int(bits), int(precision), bool(signed), bool(extended))
    return Format(*arguments.args, **arguments.kwargs)


@in_usual_environment
def fixed(bits: int, fraction_bits: int = 0, *, signed: bool = True, symmetric: bool = True) -> Format:
    """Create the format of fixed-point numbers: integers of `bits` bits, divided by 2^fraction_bits.

    A value is rounded to a multiple of 2^-fraction_bits, ties to the even integer under `nearest_even`, and saturates
    at the largest and the lowest number in every rounding mode. There is no NaN, no infinity and no -0, and no result
    is subnormal or underflows: `eps`, `smallest_normal` and `smallest_subnormal` are 2^-fraction_bits, and
    `unit_roundoff` is half of it.

    `sf.fixed(8)` is INT8 from -127 to 127, `sf.fixed(8, 6)` the elements of MXINT8, `sf.fixed(32)` an accumulator.

    Parameters:
        bits: the width of a code: 2 to 54; at most 53 with `symmetric=False`, and 1 to 53 with `signed=False`.
            Operations, and sums that round each step, accept at most 51 bits, or 50 in these two cases. `round`, and
            the `output` of an `exact` sum, accept all.
        fraction_bits: the bits after the binary point; a negative number makes the spacing larger than 1.
        signed: False for the integers from 0 to 2^bits - 1; a negative value saturates at 0.
        symmetric: False to include the lowest number of two's complement, -2^(bits - 1). It has no effect on unsigned
            formats.

    Returns:
        A Format with codes in two's complement.

    Raises:
        ValueError: if `bits` or `fraction_bits` is not an integer, if `signed` or `symmetric` is not a boolean, or if
            float64 cannot represent the numbers.

    Source: OCP Microscaling Formats (MX) 1.0, section 5.3.4, for INT8 and its symmetric range.

    Examples:
        >>> sf.round([3.5, 4.5, 1000.0, -1000.0], sf.fixed(8))
        array([   4.,    4.,  127., -127.])
        >>> sf.encode([-1, 127], sf.fixed(8)), sf.to_hex(-1.984375, sf.fixed(8, 6))
        (array([255, 127], dtype=uint8), '81')
        >>> sf.fixed(8, symmetric=False).min, sf.fixed(8, signed=False).max
        (-128.0, 255.0)
    """
    _check_integers(bits=bits, fraction_bits=fraction_bits)
    _check_booleans(signed=signed, symmetric=symmetric)
    arguments = fixed_arguments(int(bits), int(fraction_bits), bool(signed), bool(symmetric))
    return Format(*arguments.args, **arguments.kwargs)


def _check_integers(**options: Any) -> None:
    for key, value in options.items():
        if not is_integer(value):
            raise ValueError(f"{key} must be an integer, got {value!r}.")


def _check_booleans(**options: Any) -> None:
    for key, value in options.items():
        if not isinstance(value, bool | np.bool):
            raise ValueError(f"{key} must be True or False, got {value!r}.")


#: Further names of the formats, in lower case: from IEEE 754, safetensors, ONNX, MLIR, Triton, vLLM, CUTLASS, gfloat.
#: None of these names of E4M3 is a format with infinities. MLIR's f8E4M3 is one, and raises an error (`advice_for`).
ALIASES: dict[Format, str] = {
    FP64: "binary64 f64 fp64",
    FP32: "binary32 f32 fp32",
    TF32: "tfloat32 tfloat32_t",
    BF16: "bf16 bfloat16_t",
    FP16: "binary16 f16 fp16 half_t",
    E5M2: "f8_e5m2 float8e5m2 f8e5m2 fp8e5 float8e5 fp8e5m2 fp8_e5m2 float_e5m2_t ocp_e5m2",
    E4M3: "f8_e4m3 f8_e4m3fn float8e4m3fn f8e4m3fn fp8e4nv float8e4nv fp8e4m3 fp8_e4m3 fp8_e4m3fn "
    "float_e4m3_t ocp_e4m3",
    E3M4: "f8e3m4",
    E5M2FNUZ: "f8_e5m2fnuz float8e5m2fnuz f8e5m2fnuz fp8e5b16 float8e5b16 fp8_e5m2fnuz",
    E4M3FNUZ: "f8_e4m3fnuz float8e4m3fnuz f8e4m3fnuz fp8e4b8 float8e4b8 fp8_e4m3fnuz",
    E4M3B11FNUZ: "float8e4m3b11fnuz f8e4m3b11fnuz",
    E3M2: "f6_e3m2 f6e3m2fn fp6_e3m2 float_e3m2_t ocp_e3m2",
    E2M3: "f6_e2m3 f6e2m3fn fp6_e2m3 float_e2m3_t ocp_e2m3",
    E2M1: "f4 f4_e2m1 float4e2m1 f4e2m1fn fp4_e2m1 float_e2m1_t ocp_e2m1",
    E8M0: "f8_e8m0 float8e8m0 f8e8m0fnu float_ue8m0_t ocp_e8m0",
    fixed(8, 6, symmetric=False): "ocp_int8",
}
NAMED.update({name: format for format, names in ALIASES.items() for name in names.split()})


@in_usual_environment
def as_format(x: Any) -> Format:
    """Return the format that `x` names.

    Names are read in any case. ``e4m3`` is the E4M3 of OCP, as in the catalog; ``float8_e4m3`` is the dtype of that
    name in ml_dtypes, which has infinities.

    Parameters:
        x: a Format, a dtype of NumPy, ml_dtypes or PyTorch, the `dtype` of an array, or a text. A text is a name of the
            catalog (``"bf16"``), of a dtype (``"half"``, ``"torch.float8_e4m3fn"``, ``"e4m3fn"``), of P3109
            (``"Binary8p3se"``), of IEEE 754 (``"binary16"``), or of a file format or compiler: safetensors
            (``"F8_E4M3"``), ONNX (``"FLOAT8E4M3FN"``), MLIR (``"f8E4M3FN"``), Triton (``"fp8e4nv"``), vLLM
            (``"fp8_e4m3"``), gfloat (``"ocp_e4m3"``). Widths such as ``"e5m10"`` mean an IEEE format. The text of a
            format is read back: ``as_format(str(f)) == f``.

    Returns:
        The format.

    Raises:
        ValueError: if no format has this name. The message has the nearest names, or names an alternative (to posits,
            integers, MXFP4).

    Examples:
        >>> sf.as_format("bf16"), sf.as_format("e5m2"), sf.as_format("e3m4")
        (Format(8, 7, name='BF16'), Format(5, 2, name='E5M2'), Format(3, 4, name='E3M4'))
    """
    if isinstance(x, Format):
        return x
    if isinstance(x, np.dtype) and x.metadata and isinstance(own := x.metadata.get(FORMAT_IN_DTYPE), Format):
        return own
    name = x if isinstance(x, str) else _dtype_name(x)
    if name is None:
        raise ValueError(f"A format is a simfloat.Format, its name or a dtype, got {x!r} of type {type(x).__name__}.")
    if re.fullmatch(r"\|?V\d+|void\d*", name) and not getattr(x, "names", None):
        raise ValueError(
            f"{x!r} is NumPy's type for bytes without a meaning. np.load returns it for arrays of ml_dtypes, because a "
            "file has no names of their types. Decode the array in its format: simfloat.decode(array, simfloat.BF16) "
            "for V2, and an FP8 format such as simfloat.E4M3 for V1."
        )
    format = read_format(name) or read_format(re.sub(r"(?i)^torch\.", "", name))
    if format is None:
        answer = advice_for(name) or f"{_nearest_names(name)}; or write e5m10 for 5 and 10 bits"
        raise ValueError(f"Unknown format {name!r}. {answer}.")
    return format


def _dtype_name(x: Any) -> str | None:
    """Return the name of a dtype or of an array's element type; None for anything else."""
    if isinstance(x, np.dtype):
        return x.name
    if isinstance(x, type):
        return x.__name__
    # A torch.dtype prints as torch.float16; this avoids importing torch.
    return str(x).rpartition(".")[2] if type(x).__name__ == "dtype" else None


def _nearest_names(name: str) -> str:
    from difflib import get_close_matches  # imported only for errors

    names = {each.upper(): each for each in [*DTYPES, *CATALOG]}
    near = [names[match] for match in get_close_matches(name.upper(), names, n=3, cutoff=0.6)]
    if not near:
        return f"There are {', '.join(CATALOG)}, and sf.Format(exponent_bits, mantissa_bits)"
    if any(read_format(candidate) == E4M3_IEEE for candidate in near):
        # E4M3 means the format of OCP to most people: a format with infinities is not suggested for it.
        near = [
            "E4M3",
            *(candidate for candidate in near if read_format(candidate) not in (E4M3, E4M3_IEEE)),
            "E4M3_IEEE (with infinities)",
        ]
    return f"Nearest names: {', '.join(near)}"
