"""simfloat: narrow floating-point arithmetic, bit for bit.

Formats and rounding modes say which numbers exist and which one is chosen; `round`, `add` ... `sigmoid` compute with
one rounding each; accumulators, `matmul`, `dot` and `sum` make sums as machines do; policies, tensors, layers and
optimizers train models with every operation rounded; a Recorder counts what the roundings did.
"""

import importlib
from typing import TYPE_CHECKING

from simfloat.accumulate import (
    Accumulator,
    blocked,
    conv2d,
    dot,
    exact,
    fused,
    kahan,
    matmul,
    matrix_core,
    pairwise,
    partial_sums,
    sequential,
    sum,
    tensor_core,
)
from simfloat.arithmetic import (
    BitStream,
    BlockScaled,
    GivenBits,
    Observer,
    block,
    block_quantize,
    cast,
    decode,
    delayed,
    encode,
    get_threads,
    hadamard,
    nextafter,
    per_tensor,
    readmemh,
    round,
    scaled,
    set_threads,
    to_hex,
    ulp,
    writememh,
)
from simfloat.arithmetic.catalog import FUNCTIONS as _FUNCTIONS
from simfloat.arithmetic.functions import *  # noqa: F403 (one for each row of the catalog)
from simfloat.formats import (
    BF16,
    CATALOG,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3_IEEE,
    E4M3B11FNUZ,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    TF32,
    Format,
    Rounding,
    as_format,
    finfo,
    fixed,
    nearest_away,
    nearest_even,
    p3109,
    stochastic,
    to_odd,
    toward_negative,
    toward_positive,
    toward_zero,
)
from simfloat.policy import Policy, Recipe, policies
from simfloat.version import __version__ as __version__

if TYPE_CHECKING:
    from simfloat import nn, optim, plots, telemetry, torch, train
    from simfloat.attribution import attribute
    from simfloat.autodiff import (
        Parameter,
        Tensor,
        concatenate,
        gradcheck,
        operation,
        stack,
        where,
    )
    from simfloat.blackbox import reveal
    from simfloat.simulation import Simulation, Switching, no_grad, simulate
    from simfloat.telemetry import Recorder
    from simfloat.train import load, save
else:
    # What training and figures need is imported when it is first used: numbers and sums do without. Type checkers read
    # the imports above instead, and know which names there are.
    _LATER = {
        **{name: (f"simfloat.{name}", None) for name in ("nn", "optim", "plots", "telemetry", "torch", "train")},
        **{
            name: ("simfloat.autodiff", name)
            for name in (
                "Parameter",
                "Tensor",
                "concatenate",
                "gradcheck",
                "operation",
                "stack",
                "where",
            )
        },
        **{name: ("simfloat.simulation", name) for name in ("Simulation", "Switching", "no_grad", "simulate")},
        **{name: ("simfloat.train", name) for name in ("load", "save")},
        "Recorder": ("simfloat.telemetry", "Recorder"),
        "attribute": ("simfloat.attribution", "attribute"),
        "reveal": ("simfloat.blackbox", "reveal"),
    }

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module 'simfloat' has no attribute {name!r}")
        module, attribute = _LATER[name]
        imported = importlib.import_module(module)
        value = globals()[name] = imported if attribute is None else getattr(imported, attribute)
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "Accumulator", "BF16", "BitStream", "BlockScaled", "CATALOG", "E2M1", "E2M3", "E3M2", "E3M4", "E4M3",
    "E4M3B11FNUZ", "E4M3FNUZ", "E4M3_IEEE", "E5M2", "E5M2FNUZ", "E8M0", "FP16", "FP32", "FP64", "Format",
    "GivenBits", "Observer", "Parameter", "Policy", "Recipe", "Recorder", "Rounding", "Simulation", "Switching",
    "TF32", "Tensor", "as_format", "attribute", "block", "block_quantize", "blocked", "cast", "concatenate",
    "conv2d", "decode", "delayed", "dot", "encode", "exact", "finfo", "fixed", "fused", "get_threads", "gradcheck",
    "hadamard", "kahan", "load", "matmul", "matrix_core", "nearest_away", "nearest_even", "nextafter", "nn",
    "no_grad", "operation", "optim", "p3109", "pairwise", "partial_sums", "per_tensor", "plots", "policies",
    "readmemh", "reveal", "round", "save", "scaled", "sequential", "set_threads", "simulate", "stack", "stochastic",
    "sum", "telemetry", "tensor_core", "to_hex", "to_odd", "torch", "toward_negative", "toward_positive", "toward_zero",
    "train", "ulp", "where", "writememh",
    *_FUNCTIONS,
]  # fmt: skip
