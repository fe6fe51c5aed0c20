"""Names that no Format has, as of posits, of MXFP4 and of accumulators, each with what to write instead."""

from __future__ import annotations

import re

#: Patterns of names in lower case, each with what to write; `bits` of an integer make the ends of its range.
ADVICE_BY_PATTERN = {
    r"(?:posit|takum).*": "The precision of posits and takums tapers, which no Format's does; of their widths there "
    "are FP16, BF16, E4M3, E5M2 and sf.p3109(bits, precision)",
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
    r"(?:nf|normalfloat)4": "NF4 is a table of 16 numbers, which no Format is; of four bits there are E2M1 and "
    "sf.fixed(4)",
    r"(?:fp|float)8": "FP8 is E4M3 (to 448, for weights and activations) or E5M2 (to 57344, for gradients); say which",
    r"f(?:loat)?8e4m3": "OCP's E4M3, to 448, is f8E4M3FN in MLIR, and E4M3 here; MLIR's f8E4M3 has infinities and is "
    "E4M3_IEEE",
    r"float": "float is FP32 in C, PyTorch and ONNX, and FP64 in Python and NumPy; say which",
    r"f80|f128": "FP64 is the widest format that there is",
    r"bf8|hf8": "BF8 is E5M2, and HF8 is E4M3",
    r"ue8m0": "UE8M0 is E8M0",
    r"ue(?P<exponent>[1-8])m(?P<mantissa>\d)": "A format without a sign is sf.Format({exponent}, {mantissa}, "
    "signed=False), with special='fn' where it has NaN and no infinity",
    r"(?:fp|float)6": "FP6 is E3M2 (to 28) or E2M3 (to 7.5); say which",
    r"(?:fp|float)4": "FP4 is E2M1",
    r"(?:lns|log).*": "Logarithmic numbers there are with whole exponents only, the powers of two: E8M0, or "
    "sf.Format(5, 0, special='fn') with signs and zero",
    r"(?:int|i|s)(?P<bits>[2-9]|[1-4]\d|5[0-3])": "Integers are fixed-point numbers: sf.fixed({bits}) is -{most} to "
    "{most}, and sf.fixed({bits}, symmetric=False) has -{lowest} as well",
    r"(?:uint|u|ui)(?P<bits>[1-9]|[1-4]\d|5[0-3])": "Integers are fixed-point numbers: sf.fixed({bits}, signed=False) "
    "is 0 to {mask}",
    r"(?:uint|ui|u|int|i|s)\d{1,2}|int|uint|integer": "Integers are fixed-point numbers of 2 to 54 bits: sf.fixed(8) "
    "is -127 to 127, sf.fixed(8, signed=False) 0 to 255",
    r"(?:fp|float|binary)(?:80|96|128|256)|longdouble|quad.*": "FP64 is the widest format that there is",
    r"(?P<order>kahan|pairwise|sequential)": "{order} is an order of sums, made with a format: sf.{order}(sf.FP32)",
    r"blocked": "blocked is an order of sums, made with a length and two formats: sf.blocked(32, sf.FP16, sf.FP32)",
    r"fused": "fused is an order of sums, made with numbers of a unit: sf.fused(terms=16, fraction_bits=25)",
    r"tensor_?core": "A tensor core is named by its architecture: sf.tensor_core('hopper')",
    r"matrix_?core": "A matrix core is named by its architecture and inputs: sf.matrix_core('cdna3', sf.FP16)",
    r"exact": "The accumulator of that name is sf.exact",
    r"(?:fixed|q)[\d.(]+.*": "Fixed-point numbers are sf.fixed(bits, fraction_bits), with signed=False or "
    "symmetric=False if need be",
}


def advice_for(name: str) -> str | None:
    """What to write instead of such a name; None for any other name."""
    for pattern, answer in ADVICE_BY_PATTERN.items():
        if match := re.fullmatch(pattern, name.lower()):
            groups = match.groupdict()
            lowest = 2 ** (int(groups.get("bits", 1)) - 1)
            return answer.format(**groups, most=lowest - 1, lowest=lowest, mask=2 * lowest - 1)
    return None
