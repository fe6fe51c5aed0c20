"""Named policies from the literature and from libraries, with the lists of automatic mixed precision.

The lists name the operations that run in 16 bits and in FP32; other operations follow their operands. They are the
lists of the libraries, restricted to operations of simfloat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simfloat.arithmetic import block, cast, delayed, hadamard, per_tensor, scaled
from simfloat.arithmetic.casts import Cast
from simfloat.formats import BF16, E2M1, E4M3, E5M2, E8M0, FP16, FP32, FP64, Format, stochastic
from simfloat.policy.policy import Policy, policies
from simfloat.policy.roles import CUDA, WIDEST
from simfloat.sums import tensor_core

#: The deny list of NVIDIA's guide contains losses; so do both libraries.
LOSSES = (
    "mse_loss", "cross_entropy", "binary_cross_entropy_with_logits", "smooth_l1_loss", "ctc_loss", "huber_loss",
    "soft_margin_loss", "multi_margin_loss", "binary_cross_entropy", "l1_loss", "margin_ranking_loss",
    "hinge_embedding_loss", "cosine_embedding_loss", "poisson_nll_loss", "triplet_margin_loss",
)  # fmt: skip

#: PyTorch, docs/source/amp.md, "CUDA Ops that can autocast to float16": conv2d, conv_transpose2d, linear, matmul,
#: prelu, and the cells of recurrent layers, which are linear layers in simfloat.
AUTOCAST_NARROW = ("linear", "matmul", "conv2d", "conv_transpose2d", "prelu")

#: Attention: both libraries run it in 16 bits (aten/src/ATen/autocast_mode.h), as one kernel. The kernel computes in
#: FP32, and only the probabilities are rounded, as operands of their product with the values.
ATTENTION = "scaled_dot_product_attention"

#: The same page, "CUDA Ops that can autocast to float32": __pow__, acos, asin, cosh, erfinv, exp, expm1, group_norm,
#: layer_norm, log, log10, log1p, log2, log_softmax, prod, reciprocal, rsqrt, sinh, softmax, softplus, sum, tan and
#: the losses; and logsumexp and upsampling, which are only in the source (aten/src/ATen/autocast_mode.h). Batch norm
#: is on no list: cuDNN computes it in FP32 from operands of any format.
AUTOCAST_WIDE = (
    "exp", "log", "log2", "power", "reciprocal", "rsqrt", "tan", "sum", "prod", "softmax", "log_softmax", "logsumexp",
    "softplus", "layer_norm", "group_norm", "batch_norm", *LOSSES, "log10", "expm1", "log1p", "sinh", "cosh", "asin",
    "acos", "erfinv", "kl_div", "cosine_similarity", "interpolate",
)  # fmt: skip

#: Functions on no list, with formulas that contain operations on a list: in PyTorch they are kernels that follow
#: their operands.
UNLISTED = (
    "elu", "mish", "log_sigmoid", "logit", "xlogy", "entropy", "logaddexp", "var", "nansum", "trace", "logcumsumexp",
    "bilinear",
)  # fmt: skip

#: NVIDIA Apex, apex/amp/lists: FP16_FUNCS of torch_overrides.py and functional_overrides.py.
APEX_NARROW = ("linear", "matmul", "conv2d", "conv_transpose2d")

#: The same files, FP32_FUNCS, and batch norm, which the properties of O1 keep in FP32.
APEX_WIDE = (*AUTOCAST_WIDE, "var")


def policy_of_lists(format: Format, narrow: tuple[str, ...], wide: tuple[str, ...]) -> Policy:
    """Return a policy: parameters in FP32, `narrow` operations in `format`, `wide` ones in FP32, others as their
    operands.
    """
    policy = Policy(compute=format, weights=FP32, activations=WIDEST)
    policy = policy.allow(*narrow, ATTENTION).deny(*wide).infer(*(name for name in UNLISTED if name not in wide))
    return policy.override(operation=(ATTENTION,), fused=True)


REVISITING = "Revisiting BFloat16 Training, arXiv 2010.06192"
MIXED = "Micikevicius et al., Mixed Precision Training, ICLR 2018"
AUTOCAST = "PyTorch, torch.autocast on CUDA, docs/source/amp.md"
ENGINE = "NVIDIA TransformerEngine, transformer_engine/common/recipe"
MICROSCALING = "OCP Microscaling Formats 1.0"
APEX = "NVIDIA Apex, apex/amp/frontend.py"


def _narrow(operands: Cast, gradients: Cast | None = None, **roles: Any) -> Policy:
    """Return a policy with narrow operands of contractions; other results in BF16, parameters and optimizer in FP32."""
    return Policy(compute=operands, compute_gradients=gradients, weights=FP32, activations=BF16, **roles)


#: Name, policy and source of every preset. A policy is created at its first use.
PRESETS: tuple[tuple[str, Callable[[], Policy], str], ...] = (
    ("fp64", lambda: Policy(compute=FP64, accumulate=FP64), "IEEE 754-2019 binary64 throughout"),
    ("fp32", lambda: Policy(compute=FP32), f"{REVISITING}, section 2: 32-bit precision training"),
    (
        "as-written",
        lambda: Policy(compute=FP32, written=True),
        "PyTorch, torch.dtype: the dtypes of the program, as in model.bfloat16(), autocast, and float8 tensors",
    ),
    (
        "as-written-cuda",
        lambda: Policy(compute=FP32, written=CUDA),
        "The same by PyTorch's CUDA kernels, aten/src/ATen/native/cuda/BinaryDivTrueKernel.cu",
    ),
    ("bf16-standard", lambda: Policy(compute=BF16), f"{REVISITING}, section 1: the standard algorithm"),
    (
        "bf16-stochastic",
        lambda: Policy(compute=BF16, update="stochastic"),
        f"{REVISITING}, section 3.2: stochastic rounding of the weight update",
    ),
    (
        "bf16-kahan",
        lambda: Policy(compute=BF16, update="kahan"),
        f"{REVISITING}, algorithm 1: Kahan summation of the weight updates",
    ),
    (
        "bf16-fp32-weights",
        lambda: Policy(compute=BF16, weights=FP32, optimizer_state=BF16),
        f"{REVISITING}, section 4: 32-bit weights, all else in 16 bits",
    ),
    ("fp16-standard", lambda: Policy(compute=FP16), f"{MIXED}, section 3: FP16 without a master copy"),
    ("fp16-master", lambda: Policy(compute=FP16, weights=FP32), f"{MIXED}, section 3.1: FP32 master copy of weights"),
    ("amp-fp16", lambda: policy_of_lists(FP16, AUTOCAST_NARROW, AUTOCAST_WIDE), f"{AUTOCAST}: dtype=torch.float16"),
    ("amp-bf16", lambda: policy_of_lists(BF16, AUTOCAST_NARROW, AUTOCAST_WIDE), f"{AUTOCAST}: dtype=torch.bfloat16"),
    ("apex-o0", lambda: Policy(compute=FP32), f"{APEX}: O0, FP32 training"),
    ("apex-o1", lambda: policy_of_lists(FP16, APEX_NARROW, APEX_WIDE), f"{APEX}: O1, the lists of apex/amp/lists"),
    (
        "apex-o2",
        # In PyTorch, cross_entropy is two operations; one of them is log_softmax.
        lambda: Policy(compute=FP16, weights=FP32).deny("batch_norm", "log_softmax", *LOSSES),
        f"{APEX}: O2, an FP16 model with FP32 batch norm, outputs and master weights",
    ),
    ("apex-o3", lambda: Policy(compute=FP16), f"{APEX}: O3, FP16 throughout"),
    (
        "fp8-hybrid",
        lambda: _narrow(scaled(E4M3, per_tensor()), scaled(E5M2, per_tensor())),
        f"{ENGINE}, Float8CurrentScaling with Format.HYBRID",
    ),
    (
        "fp8-delayed",
        lambda: _narrow(scaled(E4M3, delayed()), scaled(E5M2, delayed())),
        f"{ENGINE}, DelayedScaling with Format.HYBRID",
    ),
    (
        "mxfp8",
        lambda: _narrow(scaled(E4M3, block(32, E8M0)), accumulate=tensor_core("blackwell", scales=(32, E8M0))),
        f"{ENGINE}, MXFP8BlockScaling; {MICROSCALING}",
    ),
    (
        "mxfp4",
        lambda: _narrow(scaled(E2M1, block(32, E8M0)), accumulate=tensor_core("blackwell", scales=(32, E8M0))),
        f"{MICROSCALING}, MXFP4 operands",
    ),
    (
        "nvfp4",
        lambda: _narrow(
            scaled(E2M1, block(16, E4M3)),
            cast(E2M1, stochastic(), scale=block(16, E4M3)),
            compute_weights=scaled(E2M1, block((16, 16), E4M3)),
            accumulate=tensor_core("blackwell", scales=(16, E4M3)),
            rotation=hadamard(16),
        ),
        "Pretraining Large Language Models with NVFP4, arXiv 2509.25149; layers that it keeps in BF16 are overrides",
    ),
    (
        "fp8-hopper",
        lambda: _narrow(scaled(E4M3, per_tensor()), scaled(E5M2, per_tensor()), accumulate=tensor_core("hopper")),
        "MMA-Sim, arXiv 2511.10909: Hopper's wgmma, E4M3 forward and E5M2 x E4M3 backward",
    ),
    (
        "fp8-deepseek",
        lambda: _narrow(
            scaled(E4M3, block(128, FP32)),
            compute_weights=scaled(E4M3, block((128, 128), FP32)),
            accumulate=tensor_core("hopper"),
            optimizer_state=BF16,
        ),
        "DeepSeek-V3, arXiv 2412.19437, section 3.3: rows and squares of 128, FP32 promotion of every 128 products",
    ),
)


for name, make, source in PRESETS:
    policies.add(name, make, source)
