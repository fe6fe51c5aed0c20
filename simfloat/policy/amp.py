"""The lists of automatic mixed precision: which operations run in 16 bits and which in FP32.

Others follow their operands. The lists are those of the libraries, as far as their operations exist here.
"""

from __future__ import annotations

from simfloat.formats import FP32, Format
from simfloat.policy.policy import Policy
from simfloat.policy.role_types import WIDEST

#: The guide's deny list names losses, as both libraries do.
LOSSES = (
    "mse_loss", "cross_entropy", "binary_cross_entropy_with_logits", "smooth_l1_loss", "ctc_loss", "huber_loss",
    "soft_margin_loss", "multi_margin_loss", "binary_cross_entropy",
)  # fmt: skip

#: PyTorch, docs/source/amp.md, "CUDA Ops that can autocast to float16": conv2d, conv_transpose2d, linear, matmul,
#: prelu, and the cells of recurrent layers, which are linear layers here.
AUTOCAST_NARROW = ("linear", "matmul", "conv2d", "conv_transpose2d", "prelu")

#: Attention, which both libraries bring to 16 bits (aten/src/ATen/autocast_mode.h), and which is one kernel there: of
#: what it computes in FP32 the probabilities alone are rounded, as operands of their product with the values.
ATTENTION = "scaled_dot_product_attention"

#: The same page, "CUDA Ops that can autocast to float32": __pow__, acos, asin, cosh, erfinv, exp, expm1, group_norm,
#: layer_norm, log, log10, log1p, log2, log_softmax, prod, reciprocal, rsqrt, sinh, softmax, softplus, sum, tan and the
#: losses; and logsumexp, which its source has besides (aten/src/ATen/autocast_mode.h). Batch norm is on no list: cuDNN
#: computes it in FP32 from operands of any format.
AUTOCAST_WIDE = (
    "exp", "log", "log2", "power", "reciprocal", "rsqrt", "tan", "sum", "prod", "softmax", "log_softmax", "logsumexp",
    "softplus", "layer_norm", "group_norm", "batch_norm", *LOSSES, "log10", "expm1", "log1p", "sinh", "cosh", "asin",
    "acos", "erfinv",
)  # fmt: skip

#: Functions on no list, whose formulas have operations that are: as kernels they follow their operands.
UNLISTED = ("elu", "mish", "log_sigmoid", "logit", "xlogy", "entropy", "logaddexp")

#: NVIDIA Apex, apex/amp/lists, FP16_FUNCS of torch_overrides.py and functional_overrides.py.
APEX_NARROW = ("linear", "matmul", "conv2d", "conv_transpose2d")

#: The same files, FP32_FUNCS; and batch norm, which the properties of O1 keep in FP32.
APEX_WIDE = (*AUTOCAST_WIDE, "var")


def policy_of_lists(format: Format, narrow: tuple[str, ...], wide: tuple[str, ...]) -> Policy:
    """Parameters in FP32; `narrow` operations in `format`, `wide` ones in FP32, others in their operands'."""
    policy = Policy(compute=format, weights=FP32, activations=WIDEST)
    policy = policy.allow(*narrow, ATTENTION).deny(*wide).infer(*UNLISTED)
    return policy.override(operation=(ATTENTION,), fused=True)
