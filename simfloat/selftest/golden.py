"""Known answers: codes by exact rational computation, checked against NumPy and ml_dtypes; published numbers."""

from __future__ import annotations

from fractions import Fraction

#: Format, number, and its codes under nearest_even, nearest_away, toward_zero, toward_positive, toward_negative and
#: to_odd.
ROUNDED: tuple[tuple[str, Fraction, str], ...] = (
    ("FP16", Fraction(1) + Fraction(1, 2**11), "3C00 3C01 3C00 3C01 3C00 3C01"),
    ("FP16", Fraction(1) + Fraction(3, 2**11), "3C02 3C02 3C01 3C02 3C01 3C01"),
    ("FP16", -(Fraction(1) + Fraction(1, 2**11) + Fraction(1, 2**20)), "BC01 BC01 BC00 BC00 BC01 BC01"),
    ("FP16", Fraction(1, 10), "2E66 2E66 2E66 2E67 2E66 2E67"),
    ("FP16", Fraction(1, 2**25), "0000 0001 0000 0001 0000 0001"),
    ("FP16", Fraction(3, 2**25), "0002 0002 0001 0002 0001 0001"),
    ("FP16", -Fraction(1, 2**26), "8000 8000 8000 8000 8001 8001"),
    ("FP16", Fraction(65519), "7BFF 7BFF 7BFF 7C00 7BFF 7BFF"),
    ("FP16", Fraction(65520), "7C00 7C00 7BFF 7C00 7BFF 7BFF"),
    ("BF16", Fraction(1) + Fraction(1, 2**8), "3F80 3F81 3F80 3F81 3F80 3F81"),
    ("BF16", Fraction(1) + Fraction(3, 2**8), "3F82 3F82 3F81 3F82 3F81 3F81"),
    ("BF16", Fraction(1, 10), "3DCD 3DCD 3DCC 3DCD 3DCC 3DCD"),
    ("BF16", Fraction(1, 2**134), "0000 0001 0000 0001 0000 0001"),
    ("BF16", -Fraction(1, 2**135), "8000 8000 8000 8000 8001 8001"),
    ("BF16", (2 - Fraction(1, 2**8)) * 2**127, "7F80 7F80 7F7F 7F80 7F7F 7F7F"),
    ("E4M3", Fraction(17, 16), "38 39 38 39 38 39"),
    ("E4M3", Fraction(19, 16), "3A 3A 39 3A 39 39"),
    ("E4M3", Fraction(1, 10), "1D 1D 1C 1D 1C 1D"),
    ("E4M3", Fraction(1, 2**10), "00 01 00 01 00 01"),
    ("E4M3", Fraction(464), "7E 7F 7E 7F 7E 7E"),
    ("E4M3", Fraction(465), "7F 7F 7E 7F 7E 7E"),
    ("E5M2", Fraction(9, 8), "3C 3D 3C 3D 3C 3D"),
    ("E5M2", Fraction(11, 8), "3E 3E 3D 3E 3D 3D"),
    ("E5M2", -(Fraction(9, 8) + Fraction(1, 64)), "BD BD BC BC BD BD"),
    ("E5M2", Fraction(3, 2**17), "02 02 01 02 01 01"),
    ("E5M2", Fraction(61439), "7B 7B 7B 7C 7B 7B"),
    ("E5M2", Fraction(61440), "7C 7C 7B 7C 7B 7B"),
    # One significand bit: ties go to the even code.
    ("E8M0", Fraction(3, 2), "80 80 7F 80 7F 7F"),
    ("E8M0", Fraction(3), "80 81 80 81 80 81"),
    ("E8M0", Fraction(1, 2**140), "00 00 00 00 00 00"),
    ("E8M0", -Fraction(1), "FF FF FF FF FF FF"),
    ("E8M0", Fraction(0), "FF FF FF FF FF FF"),
    ("E8M0", Fraction(2) ** 128, "FF FF FE FF FE FE"),
)

#: The same format, counted up by ones: where the sum stays, at two to the precision.
COUNTING = (("FP16", 2048), ("BF16", 256), ("E4M3", 16), ("E5M2", 8))

#: The harmonic series: format, the first k whose rounded 1 / k changes nothing, and the sum.
#: FP16 and BF16: Higham, Accuracy and Stability of Numerical Algorithms, and Malone 2020.
HARMONIC = (
    ("FP16", 513, 7.0859375),
    ("BF16", 65, 5.0625),
    ("FP32", 2097152, 15.403682708740234),
    ("E3M4", 16, 3.5),
    ("E4M3", 9, 3.0),
    ("E5M2", 5, 2.0),
)

#: Kind, architecture, inputs, and what 2^23 - 2^23 - 1/2 - 1/4 - 1/8 gives, the first of them being the sum so far
#: (Xie et al., MMA-Sim, arXiv 2511.10909, equation 10, and its simulator 2.1.1).
UNITS = (
    *(("tensor_core", *unit) for unit in (
        ("volta", "FP16", 0.0), ("turing", "FP16", -0.5), ("ampere", "FP16", -0.5), ("ampere", "BF16", -0.5),
        ("ampere", "TF32", -0.5), ("ada", "FP16", -0.5), ("ada", "E5M2", 0.0), ("hopper", "FP16", -0.75),
        ("hopper", "BF16", -0.75), ("hopper", "TF32", -0.75), ("hopper", "E5M2", 0.0), ("hopper", "FP64", -0.875),
        ("blackwell", "FP16", -0.75), ("blackwell", "TF32", -0.75), ("blackwell", "E5M2", -0.75),
    )),
    *(("matrix_core", *unit) for unit in (
        ("cdna1", "FP16", -0.875), ("cdna1", "BF16", -0.875), ("cdna1", "FP32", -0.875), ("cdna2", "FP16", 0.0),
        ("cdna2", "BF16", -0.375), ("cdna3", "FP16", -0.5), ("cdna3", "BF16", -0.5), ("cdna3", "TF32", -0.5),
        ("cdna3", "E5M2FNUZ", -1.0),
    )),
)  # fmt: skip

#: Philox4x32-10 of the Random123 library (kat_vectors): counter, key, answer.
PHILOX = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)
