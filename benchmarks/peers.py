"""The same work by simfloat and by peers, on the same numbers, each on one thread, by processor time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np

import simfloat as sf
from benchmarks.measure import seconds, threads

COLUMNS = ("what", "who", "rate", "simfloat is", "results")
VALUES, SIZE = 1 << 18, 192


class Work(NamedTuple):
    """What to time, its share of the whole work, and how its result becomes an array (None: it is other arithmetic)."""

    run: Callable[[], Any]
    share: float = 1.0
    array: Callable[[Any], np.ndarray] | None = np.asarray


def rows() -> Iterator[tuple[str, ...]]:
    """Roundings, elementwise sums, and products with FP16 accumulators."""
    with threads(1):
        yield from _one_thread_rows()


def _one_thread_rows() -> Iterator[tuple[str, ...]]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(VALUES).astype(np.float32)
    for name, peers in ROUND.items():
        ours = Work(lambda name=name: sf.round(x, name))
        yield from _compare(f"round float32 to {name}", VALUES, ours, peers, x, sf.CATALOG[name])
    a, b = sf.round(rng.standard_normal((2, VALUES)), sf.FP16).astype(np.float32)
    yield from _compare("add, FP16", VALUES, Work(lambda: sf.add(a, b, sf.FP16)), ADD, a, b)
    a, b = sf.round(rng.standard_normal((2, SIZE, SIZE)), sf.FP16).astype(np.float32)
    for name, accumulate in ACCUMULATORS.items():
        ours = Work(lambda s=accumulate: sf.matmul(a, b, accumulate=s, stream=sf.BitStream(0)))
        yield from _compare(f"multiply-add, {name}", SIZE**3, ours, PRODUCTS[name], a, b)


def _compare(
    what: str, count: int, ours: Work, peers: dict[str, Callable[..., Work]], *operands: object
) -> Iterator[tuple[str, ...]]:
    own = count / _seconds(ours)
    yield what, f"simfloat {sf.__version__}", _rate(own), "", ""
    for package, prepare in peers.items():
        try:
            who = f"{package} {version(package)}"
        except PackageNotFoundError:
            yield what, package, "not installed", "", ""
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work = prepare(*operands)
            rate = work.share * count / _seconds(work)
            yield what, who, _rate(rate), _ratio(own / rate), _results(ours, work)


def _seconds(work: Work) -> float:
    # Processor time: the long runs of peers suffer more from other programs than our short ones.
    return seconds(work.run, least_total=0.3, least_runs=3, clock=time.process_time)


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.3g} G/s" if rate >= 1e9 else f"{rate / 1e6:.3g} M/s"


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f} times as fast" if ratio >= 10 else f"{ratio:.2g} times as fast"


def _results(ours: Work, theirs: Work) -> str:
    """How many results differ, where both do the whole work in the same arithmetic."""
    if theirs.array is None:
        return "other arithmetic"
    if theirs.share < 1:
        return "timed in part"
    wrong = np.sum(ours.run() != np.asarray(theirs.array(theirs.run()), np.float32))
    return f"{wrong} differ" if wrong else "the same"


def _numpy_round(x: np.ndarray, format: sf.Format) -> Work:
    return Work(lambda: x.astype(np.float16).astype(np.float32))


def _torch() -> Any:
    import torch

    torch.set_num_threads(1)
    return torch


def _ml_dtypes_round(x: np.ndarray, format: sf.Format) -> Work:
    import ml_dtypes

    return Work(lambda: x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))


def _torch_round(x: np.ndarray, format: sf.Format) -> Work:
    torch = _torch()
    numbers, dtype = torch.tensor(x), torch.float16 if format == sf.FP16 else torch.float8_e4m3fn
    return Work(lambda: numbers.to(dtype).float())


def _gfloat_round(x: np.ndarray, format: sf.Format) -> Work:
    import gfloat
    from gfloat import formats

    other = formats.format_info_binary16 if format == sf.FP16 else formats.format_info_ocp_e4m3
    return Work(lambda: gfloat.round_ndarray(other, x))


def _pychop_round(x: np.ndarray, format: sf.Format) -> Work:
    from pychop import Chop

    chop = Chop(format.exponent_bits, format.mantissa_bits)
    return Work(lambda: chop(x))


def _apytypes_add(a: np.ndarray, b: np.ndarray) -> Work:
    x, y = _apytypes_arrays(a, b)
    return Work(lambda: x + y, array=lambda out: out.to_numpy())


def _torch_add(a: np.ndarray, b: np.ndarray) -> Work:
    torch = _torch()
    x, y = torch.tensor(a).half(), torch.tensor(b).half()
    return Work(lambda: x + y)


def _apytypes_product(a: np.ndarray, b: np.ndarray) -> Work:
    return _apytypes_accumulator(a, b, "TIES_EVEN")


def _apytypes_stochastic(a: np.ndarray, b: np.ndarray) -> Work:
    return _apytypes_accumulator(a, b, "STOCH_WEIGHTED")._replace(array=None)


def _apytypes_accumulator(a: np.ndarray, b: np.ndarray, mode: str) -> Work:
    import apytypes

    x, y = _apytypes_arrays(a, b)

    def product() -> Any:
        with apytypes.APyFloatAccumulatorContext(5, 10, quantization=apytypes.QuantizationMode[mode]):
            return x @ y

    return Work(product, array=lambda out: out.to_numpy())


def _apytypes_arrays(*arrays: np.ndarray) -> list[Any]:
    import apytypes

    apytypes.reset_thread_pool(1)
    return [apytypes.APyFloatArray.from_float(x, sf.FP16.exponent_bits, sf.FP16.mantissa_bits) for x in arrays]


def _torch_product(a: np.ndarray, b: np.ndarray) -> Work:
    """A sum of outer products in torch.float16, whose every operation rounds."""
    torch = _torch()
    x, y = torch.tensor(a).half(), torch.tensor(b).half()

    def product() -> Any:
        out = torch.zeros(SIZE, SIZE, dtype=torch.float16)
        for k in range(SIZE):
            out += x[:, k : k + 1] * y[k]
        return out

    return Work(product)


def _pychop_product(a: np.ndarray, b: np.ndarray) -> Work:
    """A sum of outer products, each and each sum chopped; a few of them, since one takes a tenth of a second."""
    from pychop import Chop

    chop, steps = Chop(5, 10), 4

    def product() -> np.ndarray:
        out = np.zeros((SIZE, SIZE), np.float32)
        for k in range(steps):
            out = chop(out + chop(a[:, k : k + 1] * b[k]))
        return out

    return Work(product, share=steps / SIZE)


def _mmasim_product(a: np.ndarray, b: np.ndarray) -> Work:
    """One instruction of Hopper's tensor core: 16 x 8 x 16 multiply-adds."""
    from mmasim.nv_ptx import MMA

    torch = _torch()
    unit = MMA("Hopper", "m16n8k16.f32.f16.f16.f32")
    x, y, z = torch.tensor(a[:16, :16]).half(), torch.tensor(b[:16, :8]).half(), torch.zeros(16, 8)
    return Work(lambda: unit(x, y, z), share=16 * 8 * 16 / SIZE**3, array=None)


ROUND: dict[str, dict[str, Callable[..., Work]]] = {
    "FP16": {"numpy": _numpy_round, "torch": _torch_round, "gfloat": _gfloat_round, "pychop": _pychop_round},
    "E4M3": {"ml_dtypes": _ml_dtypes_round, "torch": _torch_round, "gfloat": _gfloat_round, "pychop": _pychop_round},
}
ADD = {"apytypes": _apytypes_add, "torch": _torch_add}
ACCUMULATORS = {
    "FP16 fused": sf.sequential(sf.FP16),
    "FP16 unfused": sf.sequential(sf.FP16, products=sf.FP16),
    "FP16 unfused, stochastic": sf.sequential(sf.FP16, rounding=sf.stochastic(), products=sf.FP16),
}
PRODUCTS: dict[str, dict[str, Callable[..., Work]]] = {
    "FP16 fused": {"mmasim": _mmasim_product},
    "FP16 unfused": {"apytypes": _apytypes_product, "torch": _torch_product, "pychop": _pychop_product},
    "FP16 unfused, stochastic": {"apytypes": _apytypes_stochastic},
}
