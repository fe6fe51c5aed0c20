"""Results of other emulators that are not the exact result rounded once, with ours; all are computed in this run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np

import simfloat as sf

COLUMNS = ("emulator", "expression", "correct result", "simfloat", "emulator's result")


class Case(NamedTuple):
    """An expression, its correct result with the reason, and two functions that compute it."""

    expression: str
    due: str
    ours: Callable[[], object]
    theirs: Callable[[], object]


def rows() -> Iterator[tuple[str, ...]]:
    """Yield every case of every installed emulator."""
    for name, cases in PEERS.items():
        try:
            release = f"{name} {version(name)}"
        except PackageNotFoundError:
            yield name, "not installed", "", "", ""
            continue
        for case in cases():
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                yield release, case.expression, case.due, _text(case.ours()), _text(case.theirs())


def ml_dtypes() -> list[Case]:
    """Return cases of ml_dtypes, which converts float64 operands to float32 first."""
    import ml_dtypes

    def cast(x: float, dtype: type) -> float:
        return float(np.array(x).astype(dtype).astype(np.float64))

    return [
        _rounded("1 + 2^-8 + 2^-40", 1 + 2.0**-8 + 2.0**-40, sf.BF16, "above the tie 1 + 2^-8: 1 + 2^-7",
                 lambda x: cast(x, ml_dtypes.bfloat16)),
        _rounded("-432 + 2^-44", -431.99999999999994, sf.E4M3, "inside the tie -432: -416",
                 lambda x: cast(x, ml_dtypes.float8_e4m3fn)),
        _rounded("464 + 10^-9", 464 + 1e-9, sf.E4M3, "above the tie 464, beyond max: NaN",
                 lambda x: cast(x, ml_dtypes.float8_e4m3fn)),
    ]  # fmt: skip


def torch() -> list[Case]:
    """Return cases of PyTorch, which also converts float64 operands to float32 first."""
    import torch

    def cast(x: float, dtype: object) -> float:
        return float(torch.tensor(x, dtype=torch.float64).to(dtype).double())

    return [
        _rounded("1 + 2^-11 + 2^-40", 1 + 2.0**-11 + 2.0**-40, sf.FP16, "above the tie 1 + 2^-11: 1 + 2^-10",
                 lambda x: cast(x, torch.float16)),
        _rounded("1 + 2^-8 + 2^-40", 1 + 2.0**-8 + 2.0**-40, sf.BF16, "above the tie 1 + 2^-8: 1 + 2^-7",
                 lambda x: cast(x, torch.bfloat16)),
        _rounded("-432 + 2^-44", -431.99999999999994, sf.E4M3, "inside the tie -432: -416",
                 lambda x: cast(x, torch.float8_e4m3fn)),
    ]  # fmt: skip


def gfloat() -> list[Case]:
    """Return cases of gfloat, in which a format without subnormals has no smallest number."""
    import gfloat
    from gfloat import formats

    scale = formats.format_info_ocp_e8m0

    def rounded(x: float) -> float:
        return gfloat.round_ndarray(scale, np.array([x]))[0]

    return [
        _rounded("2^-140", 2.0**-140, sf.E8M0, "the smallest scale, 2^-127", rounded),
        Case(
            "code of 2^-140 rounded to E8M0",
            "0",
            lambda: int(sf.encode(sf.round(2.0**-140, sf.E8M0), sf.E8M0)),
            lambda: int(gfloat.encode_ndarray(scale, np.array([rounded(2.0**-140)]))[0]),
        ),
    ]


def pychop() -> list[Case]:
    """Return cases of pychop: overflow, directed modes, signs of zero, and exponents from a logarithm."""
    from pychop import Chop

    def chop(exponent_bits: int, mantissa_bits: int, mode: int = 1) -> Callable[[float], float]:
        return lambda x: Chop(exponent_bits, mantissa_bits, rmode=mode)(np.array([x]))[0]

    half = sf.decode(np.arange(1 << 16), sf.FP16).astype(np.float64)
    half = half[np.isfinite(half)]
    return [
        _rounded("65520", 65520.0, sf.FP16, "the tie where overflow begins: inf", chop(5, 10)),
        _rounded("65536", 65536.0, sf.FP16, "beyond max: inf", chop(5, 10)),
        _rounded("100000", 100000.0, sf.FP16, "beyond max: inf", chop(5, 10)),
        _rounded("300", 300.0, sf.E4M3_IEEE, "beyond max = 240: inf", chop(4, 3)),
        _rounded("-0.0", -0.0, sf.FP16, "-0.0", chop(5, 10)),
        _rounded("1024 - 2^-43", math.nextafter(1024, 0), sf.FP16, "the number below 1024: 1023.5",
                 chop(5, 10, 4), sf.toward_zero),
        _rounded("-(1 + 2^-11)", -(1 + 2.0**-11), sf.FP16, "a tie, away from zero: -(1 + 2^-10)",
                 chop(5, 10, 8), sf.nearest_away),
        _rounded("1", 1.0, sf.FP16, "a number of the format: 1", chop(5, 10, 9), sf.to_odd),
        Case(
            f"how many of the {half.size} numbers of FP16 to_odd changes",
            "0: all are fixed points",
            lambda: int(np.sum(sf.round(half, sf.FP16, sf.to_odd) != half)),
            lambda: int(np.sum(Chop(5, 10, rmode=9)(half) != half)),
        ),
    ]  # fmt: skip


def mmasim() -> list[Case]:
    """Return a case of mmasim, whose 8-bit unit of CDNA3 drops a small earlier sum, even if it is NaN."""
    import sys
    from types import ModuleType

    # No case needs its chains of FMA, which would compile C++ when they are imported.
    chains = sys.modules["mmasim.arithmetic.fma"] = ModuleType("mmasim.arithmetic.fma")
    chains.MMA_FMA = None  # type: ignore[attr-defined]
    import torch
    from mmasim.amd import MFMA

    a, b = np.zeros(32), np.zeros(32)
    a[0], b[0], a[16], b[16] = math.nan, 1.0, 2.0**14, 2.0**14

    def theirs() -> float:
        unit = MFMA("CDNA3", "f32_16x16x32_bf8_bf8")
        left, right = (torch.tensor(x[None], dtype=torch.float32).to(torch.float8_e5m2fnuz) for x in (a, b))
        return float(unit.dpa(left, right, torch.zeros(1)))

    def ours() -> float:
        return float(sf.dot(a, b, accumulate=sf.matrix_core("cdna3", sf.E5M2FNUZ)))

    return [Case("NaN, then 2^28, on CDNA3's unit for E5M2FNUZ", "NaN", ours, theirs)]


def apytypes() -> list[Case]:
    """Return a case of apytypes, whose stochastic products on several threads do not depend only on the seed."""
    import apytypes

    a = sf.round(np.random.default_rng(0).standard_normal((64, 64)), sf.FP16)
    theirs = apytypes.APyFloatArray.from_float(a, 5, 10)

    def product() -> np.ndarray:
        apytypes.set_float_quantization_seed(5)
        mode = apytypes.QuantizationMode.STOCH_WEIGHTED
        with apytypes.APyFloatAccumulatorContext(5, 10, quantization=mode):
            return (theirs @ theirs).to_numpy()

    def ours() -> np.ndarray:
        accumulate = sf.sequential(sf.FP16, rounding=sf.stochastic(), products=sf.FP16)
        return sf.matmul(a, a, accumulate=accumulate, stream=sf.BitStream(5))

    apytypes.reset_thread_pool(2)
    expression = "differing results of 4096, two stochastic products with one seed on 2 threads"
    return [Case(expression, "0", lambda: int(np.sum(ours() != ours())), lambda: int(np.sum(product() != product())))]


#: Functions that return the cases of an emulator, by the name of its package.
PEERS = {
    "ml_dtypes": ml_dtypes,
    "torch": torch,
    "gfloat": gfloat,
    "pychop": pychop,
    "apytypes": apytypes,
    "mmasim": mmasim,
}


def _rounded(
    expression: str,
    x: float,
    format: sf.Format,
    due: str,
    theirs: Callable[[float], float],
    rounding: sf.Rounding = sf.nearest_even,
) -> Case:
    """Return the case of rounding x, by default to nearest even."""
    mode = "" if rounding is sf.nearest_even else f", {rounding}"
    return Case(f"{expression} to {format}{mode}", due, lambda: float(sf.round(x, format, rounding)), lambda: theirs(x))


def _text(x: object) -> str:
    return str(x) if isinstance(x, int) else repr(float(x))  # type: ignore[arg-type]
