"""Attention as fused kernels compute it: the order of the blocks of keys, and the formats of the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, get_args

from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.common import check_flags, is_integer
from simfloat.formats import E4M3, Format, as_format
from simfloat.formats.catalog import FormatLike

Exponential = Literal["exp", "exp2"]
Scales = Literal["tensors", "heads"]

#: The number of queries in a block; pairs (least, size) if it depends on the number of queries; None for one block.
QueryBlocks = int | tuple[tuple[int, int], ...] | None

#: The largest power of two by which exponentials are multiplied before they are rounded.
MOST_SHIFT = 64

#: The parts with an option for their format.
FORMATS = ("scores", "exponentials", "denominator", "output")


def flash_attention(
    block_keys: int | None = 64,
    *,
    block_queries: int | Sequence[tuple[int, int]] | None = None,
    reverse: bool = False,
    exponential: Exponential = "exp",
    scores: FormatLike | None = None,
    exponentials: FormatLike | None = None,
    denominator: FormatLike | None = None,
    probabilities: Cast | FormatLike | None = None,
    output: FormatLike | None = None,
    shift: int = 0,
    scales: Scales = "tensors",
) -> FlashAttention:
    """Describe attention by blocks of keys, as the value of the role `fused` of "scaled_dot_product_attention".

    ``fused=True`` means ``fused=flash_attention()``.

    Every step below is rounded once. Operands of products (q, k, v, and the probabilities P') are rounded to `compute`,
    and gradients as operands to `compute_gradients`. Products are summed by `accumulate` and `accumulate_gradients`,
    other sums by `reduce`. All parts have the format of `reduce`, unless an option gives another one. The result is
    rounded to `activations`, and each gradient to its role. Forward, for each block of keys::

        scores        S = (q k^T) * scale + mask              two or three roundings
        maximum       m' = max(m, rows of S)                   exact
        exponentials  P = exp(S - m'),  r = exp(m - m')        two roundings each
        denominator   l = fma(r, l, sum of P)                  the sum and the fma are rounded
        probabilities P' = P with dropped elements set to 0    rounded as operands
        output        O = r * O + P' v                         the two products and the sum are rounded

    Then O * (1 / l) is the result; with dropout, 1 / l is first multiplied by 1 / (1 - p). In the first block, l is the
    sum and O the product, without a rescaling. Backward, with the result y, its gradient g, and L = m + log(l)::

        exponentials  P = exp(S - L)
        denominator   D = sum of g * y                         with dropout, D * (1 - p)
        probabilities dP = g v^T                               with dropout, 0 for dropped elements
        scores        dS = P * (dP - D)                        then rounded as an operand
        value         dv = P'^T g                              with dropout, times 1 / (1 - p)
        query         dq = (dS k) * scale                      summed block by block, in ascending order
        key           dk = (dS^T q) * scale                    one sum over all queries

    With ``exponential="exp2"`` and c, backward L = fma(m, scale, log(l)), and P = exp2(fma(S, c, -(L * log2(e)))). The
    products and the sum of D are rounded as `denominator`; dP - D and its product with P as `scores`. The scale, c and
    1 / (1 - p) are first rounded to the format of the part that they belong to.

    A Recorder counts the parts by these names. A query without any key gives zeros. A masked key takes no part, even if
    its numbers are NaN.

    Parameters:
        block_keys: the number of keys in a block, the last of which may be short; None for all keys in one block.
        block_queries: the number of queries in a block of the backward pass, as in PyTorch's CPU kernel. Each block, in
            ascending order, adds its product, times the scale, to the gradients of key and value. Between blocks, all
            gradients have the format of the role `activation_gradients`. If several heads of queries share a key, the
            blocks of one head follow those of another. None for one sum over all queries. Pairs
            ``(least, size)`` of positive integers if the size depends on the number of queries: the last pair with
            `least` up to this number gives the size. Pairs are in ascending order, and the first `least` is 1.
        reverse: True to start with the last block, as the GPU kernels of FlashAttention do.
        exponential: "exp" as above, or "exp2" as in GPU kernels: exp2(fma(S, c, -(m' * c))) and exp2((m - m') * c) for
            r, with S = q k^T and c = scale * log2(e). With a mask of numbers, or if the scale is not positive, S is
            as above and c = log2(e).
        scores, exponentials, denominator: the format of this part; None for the format of `reduce`.
        output: the format of r * O, and of O between blocks; None for the format of `reduce`.
        probabilities: the format or cast of P' as an operand; None for `compute`. If `compute` has a scale of the
            whole tensor, P' has none, because probabilities are at most 1.
        shift: P' is multiplied by 2**shift before it is rounded, and its products are divided by it, exactly. It has
            no effect on a cast with scales of blocks.
        scales: "heads" to compute a scale of :func:`per_tensor` for each head of each example, not for a whole tensor.

    Returns:
        An immutable value. It prints as the call that creates it, and policy files store it in this form.

    Raises:
        ValueError: if an option is invalid; the message names it.

    Sources: Dao, FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2; its kernels, csrc/flash_attn/src/softmax.h;
    FlashAttention-3, hopper/softmax.h: exponentials are multiplied by 2^8 for FP8; PyTorch,
    aten/src/ATen/native/cpu/FlashAttentionKernel.cpp.

    Examples:
        >>> kernel = sf.flash_attention(128, output=sf.BF16)
        >>> policy = sf.policies["amp-bf16"].override(operation="scaled_dot_product_attention", fused=kernel)
        >>> with sf.simulate(policy):
        ...     y = sf.nn.scaled_dot_product_attention(np.eye(4), np.eye(4), np.eye(4))
        >>> sf.Policy.from_toml(policy.to_toml()) == policy
        True
    """
    parts = {name: value for name, value in locals().items() if name in FORMATS}
    if block_keys is not None and not is_integer(block_keys, 1):
        raise ValueError(f"block_keys must be a positive integer, or None for one block; got {block_keys!r}.")
    check_flags(reverse=reverse)
    for name, value, words in (("exponential", exponential, Exponential), ("scales", scales, Scales)):
        if value not in get_args(words):
            raise ValueError(f"{name} must be one of {', '.join(get_args(words))}; got {value!r}.")
    if not is_integer(shift, -MOST_SHIFT, MOST_SHIFT):
        raise ValueError(f"shift must be an integer from -{MOST_SHIFT} to {MOST_SHIFT}, got {shift!r}.")
    formats = {name: None if value is None else as_format(value) for name, value in parts.items()}
    return FlashAttention(
        None if block_keys is None else int(block_keys),
        _read_query_blocks(block_queries),
        bool(reverse),
        exponential,
        **formats,
        probabilities=None if probabilities is None else as_cast(probabilities),
        shift=int(shift),
        scales=scales,
    )


def _read_query_blocks(block_queries: Any) -> QueryBlocks:
    """Return the sizes of blocks of queries; raise ValueError if they are invalid."""
    if block_queries is None or is_integer(block_queries, 1):
        return None if block_queries is None else int(block_queries)
    pairs = block_queries if isinstance(block_queries, Sequence) and not isinstance(block_queries, str) else ()
    if all(isinstance(pair, Sequence) and len(pair) == 2 and all(is_integer(x, 1) for x in pair) for pair in pairs):
        firsts = [pair[0] for pair in pairs]
        if firsts[:1] == [1] and all(one < other for one, other in pairwise(firsts)):
            return tuple((int(first), int(size)) for first, size in pairs)
    raise ValueError(
        "block_queries must be a positive integer, None for one block, or pairs of the least number of queries, "
        f"ascending from 1, and the size of blocks, such as ((1, 32), (192, 64)); got {block_queries!r}."
    )


@dataclass(frozen=True)
class FlashAttention:
    """See :func:`flash_attention`."""

    block_keys: int | None = 64
    block_queries: QueryBlocks = None
    reverse: bool = False
    exponential: Exponential = "exp"
    scores: Format | None = None
    exponentials: Format | None = None
    denominator: Format | None = None
    probabilities: Cast | None = None
    output: Format | None = None
    shift: int = 0
    scales: Scales = "tensors"

    def blocks(self, keys: int) -> list[slice]:
        """Return the blocks of this number of keys, in the order of the forward pass."""
        size = self.block_keys or max(keys, 1)
        blocks = [slice(start, min(start + size, keys)) for start in range(0, keys, size)]
        return blocks[::-1] if self.reverse else blocks

    def size_of_query_blocks(self, queries: int) -> int | None:
        """Return the number of queries in a block of the backward pass; None for one sum over all queries."""
        if isinstance(self.block_queries, tuple):
            return next((size for first, size in reversed(self.block_queries) if first <= queries), None)
        return self.block_queries

    def __repr__(self) -> str:
        values = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "block_keys"]
        defaults = {field.name: field.default for field in fields(self)}
        changed = [f"{name}={_text(value)}" for name, value in values if value != defaults[name]]
        return f"flash_attention({', '.join([repr(self.block_keys), *changed])})"


def _text(value: Any) -> str:
    """Return an option as text: a plain cast as its format."""
    return repr(value.format) if isinstance(value, Cast) and value.is_plain else repr(value)


#: Kernels by name.
#:
#: * ``"flash-attention-2"``: blocks of 64 keys, starting with the last one, with
#:   exp2. The size of its blocks depends on the GPU and on the width of heads: 32 to 256 keys.
#: * ``"flash-attention-3-fp8"``: the same with blocks of 128 keys, for operands in FP8 with a scale for each head.
#:   Probabilities are multiplied by 2^8 and rounded to E4M3.
#: * ``"pytorch-cpu"``: blocks of 512 keys. In the backward pass, blocks of 32 queries, of 64 if there are 192 queries
#:   or more, and of 256 if there are 768 or more.
attention_kernels: Mapping[str, FlashAttention] = MappingProxyType(
    {
        "flash-attention-2": flash_attention(64, reverse=True, exponential="exp2"),
        "flash-attention-3-fp8": flash_attention(
            128, reverse=True, exponential="exp2", probabilities=E4M3, shift=8, scales="heads"
        ),
        "pytorch-cpu": flash_attention(512, block_queries=((1, 32), (192, 64), (768, 256))),
    }
)


def kernel_of(fused: bool | FlashAttention) -> FlashAttention | None:
    """Return the kernel of attention for a value of the role `fused`; None if every step is rounded."""
    if isinstance(fused, FlashAttention):
        return fused
    # The default has no exp2. Kernels with exp2 give equal scores near 10^6 a weight of 1.01 instead of 1, as GPUs do.
    return FlashAttention() if fused else None
