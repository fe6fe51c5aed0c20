"""Time simfloat and its peers on the same values, in turns, on one thread, by processor time.

If a peer is faster, its row is bold. Peers that are not installed are listed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Any

import numpy as np

import simfloat as sf
from benchmarks.measure import Work, interleaved, threads
from benchmarks.peer_elementwise import elementwise_works

COLUMNS = ("what", "who", "rate", "simfloat is", "results")
VALUES, MANY, SIZE = 1 << 18, 1 << 24, 192

#: Peers for which this file has no work.
LEFT_OUT = ("qtorch", "mptorch", "cpfloat")


def rows() -> Iterator[tuple[str, ...]]:
    """Yield rows of roundings, elementwise operations, functions, codes, and products with FP16 accumulators."""
    with threads(1):
        yield from _one_thread_rows()


def _one_thread_rows() -> Iterator[tuple[str, ...]]:
    rng = np.random.default_rng(0)
    many = rng.standard_normal(MANY).astype(np.float32)
    for count, (name, peers) in product((VALUES, MANY), ROUND.items()):
        x = many[:count]
        ours = Work(lambda name=name, x=x: sf.round(x, name))
        quick = {peer: peers[peer] for peer in peers if count == VALUES or peer in QUICK}
        yield from _compare(
            f"round 2^{count.bit_length() - 1} float32 to {name}", count, ours, quick, x, sf.CATALOG[name]
        )
    for what, ours, peer, theirs in elementwise_works(rng, VALUES):
        yield from _compare(what, VALUES, ours, {peer: theirs})
    a, b = sf.round(rng.standard_normal((2, VALUES)), sf.FP16).astype(np.float32)
    yield from _compare("add, FP16", VALUES, Work(lambda: sf.add(a, b, sf.FP16)), ADD, a, b)
    a, b = sf.round(rng.standard_normal((2, SIZE, SIZE)), sf.FP16).astype(np.float32)
    for name, accumulate in ACCUMULATORS.items():
        ours = Work(lambda s=accumulate: sf.matmul(a, b, accumulate=s, stream=sf.BitStream(0)))
        yield from _compare(f"multiply-add, {name}", SIZE**3, ours, PRODUCTS[name], a, b)
    for package in LEFT_OUT:
        yield "all", package, "left out", "", ""


def _compare(
    what: str, count: int, ours: Work, peers: dict[str, Callable[..., Work]], *operands: object
) -> Iterator[tuple[str, ...]]:
    own = 0.0
    for package, prepare in peers.items():
        try:
            who = f"{package} {version(package)}"
        except PackageNotFoundError:
            yield what, package, "not installed", "", ""
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work = prepare(*operands)
            mine, its = interleaved(ours.run, work.run)
            rate, own = work.share * count / its, max(own, count / mine)
            row = what, who, _rate(rate), _ratio(count / mine / rate), _results(ours, work)
            yield tuple(f"[bold]{text}[/bold]" if text else "" for text in row) if count / mine < rate else row
    yield what, f"simfloat {sf.__version__}", _rate(own) if own else "", "", ""


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.3g} G/s" if rate >= 1e9 else f"{rate / 1e6:.3g} M/s"


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f} times as fast" if ratio >= 10 else f"{ratio:.2g} times as fast"


def _results(ours: Work, theirs: Work) -> str:
    """Compare the results, if both do the whole work in the same arithmetic."""
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

    dtype = ml_dtypes.bfloat16 if format == sf.BF16 else ml_dtypes.float8_e4m3fn
    return Work(lambda: x.astype(dtype).astype(np.float32))


def _torch_round(x: np.ndarray, format: sf.Format) -> Work:
    torch = _torch()
    dtypes = {sf.FP16: torch.float16, sf.BF16: torch.bfloat16, sf.E4M3: torch.float8_e4m3fn}
    numbers, dtype = torch.tensor(x), dtypes[format]
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
    """Return a sum of outer products in torch.float16; every operation rounds."""
    torch = _torch()
    x, y = torch.tensor(a).half(), torch.tensor(b).half()

    def product() -> Any:
        out = torch.zeros(SIZE, SIZE, dtype=torch.float16)
        for k in range(SIZE):
            out += x[:, k : k + 1] * y[k]
        return out

    return Work(product)


def _pychop_product(a: np.ndarray, b: np.ndarray) -> Work:
    """Return a sum of some outer products; each product and sum is rounded, which takes a tenth of a second."""
    from pychop import Chop

    chop, steps = Chop(5, 10), 4

    def product() -> np.ndarray:
        out = np.zeros((SIZE, SIZE), np.float32)
        for k in range(steps):
            out = chop(out + chop(a[:, k : k + 1] * b[k]))
        return out

    return Work(product, share=steps / SIZE)


def _mmasim_product(a: np.ndarray, b: np.ndarray) -> Work:
    """Return one instruction of Hopper's tensor core: 16 x 8 x 16 multiply-adds."""
    from mmasim.nv_ptx import MMA

    torch = _torch()
    unit = MMA("Hopper", "m16n8k16.f32.f16.f16.f32")
    x, y, z = torch.tensor(a[:16, :16]).half(), torch.tensor(b[:16, :8]).half(), torch.zeros(16, 8)
    return Work(lambda: unit(x, y, z), share=16 * 8 * 16 / SIZE**3, array=None)


ROUND: dict[str, dict[str, Callable[..., Work]]] = {
    "FP16": {"numpy": _numpy_round, "torch": _torch_round, "gfloat": _gfloat_round, "pychop": _pychop_round},
    "BF16": {"ml_dtypes": _ml_dtypes_round, "torch": _torch_round},
    "E4M3": {"ml_dtypes": _ml_dtypes_round, "torch": _torch_round, "gfloat": _gfloat_round, "pychop": _pychop_round},
}
#: Peers that round a large array in less than a second.
QUICK = ("numpy", "ml_dtypes", "torch")
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
