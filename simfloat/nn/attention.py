"""Attention, multi-head attention, and the encoder layer of a transformer.

Source: Vaswani et al., arXiv 1706.03762; multi-head attention is defined in section 3.2.2.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array, on_device_of
from simfloat.autodiff import Parameter, Tensor, where
from simfloat.autodiff.composites import composite_operation, run_composite
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.nn.arguments import as_number, as_probability, as_size, either, generator_of
from simfloat.nn.dropout import Dropout, draw_passes, dropout
from simfloat.nn.layer import Layer
from simfloat.nn.linear import Linear, affine
from simfloat.nn.norms import LayerNorm
from simfloat.options import KW_ONLY, InitVar, anything, flag, option, with_options
from simfloat.policy.flash_attention import FlashAttention, kernel_of
from simfloat.simulation.formulas.attention import (
    AttentionOptions,
    AttentionState,
    Parts,
    attend,
    causal_mask,
    gradients,
    split_masks,
)
from simfloat.simulation.simulation import current

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed


#: The name of attention in policies: a composite of several operations.
ATTENTION = "scaled_dot_product_attention"


@in_usual_environment
def scaled_dot_product_attention(
    query: Operand,
    key: Operand,
    value: Operand,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(query key^T * scale + mask) value.

    Two contractions, two products, the addition of a mask of numbers, and the composite `softmax` are each rounded as
    the policy says. As in PyTorch, query and key are each multiplied by the square root of the scale, which keeps their
    product in the range of narrow formats.

    If the policy sets `fused` for the composite ``"scaled_dot_product_attention"``, as the presets of automatic mixed
    precision do, it is one operation, computed by blocks of keys as a kernel computes it:

    * The operands of both contractions, including the probabilities, are rounded to `compute`.
    * The scores, the exponentials and their sums have the format of `reduce`.
    * The result is rounded once, and so is each gradient.

    :func:`simfloat.flash_attention` states the order of the roundings; ``fused=True`` means its defaults. Use
    ``policy.override(operation="scaled_dot_product_attention", fused=False)`` to round every step instead.

    Parameters:
        query, key, value: arrays (..., L, E), (..., S, E) and (..., S, V).
        attn_mask: an array that broadcasts to (..., L, S). A boolean mask is True for the keys that take part; a mask
            of numbers is added to the scores. A query without any key gives zeros.
        dropout_p: the probability with which each weight is dropped, as in Dropout.
        is_causal: True if query i uses only the keys up to i.
        scale: the factor of the scores; by default 1 / sqrt(E).
        enable_gqa: True if several heads of the query, axis -3, share one head of key and value.

    Returns:
        A Tensor (..., L, V).

    Raises:
        ValueError: if the shapes do not fit; if both attn_mask and is_causal are given.

    Examples:
        >>> q = k = v = np.eye(3)
        >>> with sf.simulate("fp32"):
        ...     y = sf.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
        >>> y.data[0]
        array([1., 0., 0.], dtype=float32)
    """
    check_flags(is_causal=is_causal, enable_gqa=enable_gqa)
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"Attention needs query (..., L, E), key (..., S, E) and value (..., S, V), got shapes {q.shape}, "
            f"{k.shape} and {v.shape}."
        )
    if is_causal and attn_mask is not None:
        raise ValueError("Attention takes an attn_mask or is_causal=True, got both.")
    masks = [causal_mask(q.shape[-2], k.shape[-2])] if is_causal else []
    masks += [] if attn_mask is None else [as_array(attn_mask)]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else as_number("scale", scale)
    dropout_p = as_probability("dropout_p", dropout_p)
    if enable_gqa and not _shares_heads(q.shape, k.shape, v.shape):
        raise ValueError(
            "With enable_gqa, the number of heads of the query (axis -3) must be a multiple of that of key and value, "
            f"got shapes {q.shape}, {k.shape} and {v.shape}."
        )
    return attention_composite(q, k, v, masks, scale, dropout_p, k.shape[-3] if enable_gqa else None)


def _shares_heads(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> bool:
    return min(len(q), len(k), len(v)) > 2 and k[-3] == v[-3] > 0 and q[-3] % k[-3] == 0


def attention_composite(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masks: list[NDArray],
    scale: float,
    dropout_p: float,
    heads: int | None = None,
) -> Tensor:
    """Compute attention as one operation if the policy rounds it as a whole, otherwise from scaled query and key.

    `heads` is the number of heads of key and value, if several heads of the query share one.
    """
    kernel = kernel_of(current().place(ATTENTION).recipe.fused)
    if kernel is not None:
        return _flash_attention(kernel, q, k, v, masks, scale, dropout_p, heads)

    def steps(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x if heads is None else _repeat_heads(x, q.shape[-3] // heads) for x in (k, v))
        return dropout(attention_weights(*scale_by_root(q, k, scale), masks), dropout_p) @ v

    return run_composite(ATTENTION, steps, [q, k, v], q.from_result)


def _repeat_heads(x: Tensor, times: int) -> Tensor:
    """Return each head of x (..., heads, n, m) several times in a row."""
    return x if times == 1 else x[..., np.repeat(np.arange(x.shape[-3]), times), :, :]


def _flash_attention(
    kernel: FlashAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masks: list[NDArray],
    scale: float,
    dropout_p: float,
    heads: int | None,
) -> Tensor:
    """Compute attention in blocks of keys, as one recorded operation."""
    axes = -2 if heads is None else -3
    shape = *np.broadcast_shapes(q.shape[:axes], k.shape[:axes]), *q.shape[axes:-1], k.shape[-2]
    allowed, addends = masks_at(masks, shape, q.numbers)
    passes = on_device_of(draw_passes(shape, dropout_p), q.numbers) if dropout_p else None
    options = AttentionOptions(kernel, scale, allowed, addends, passes, 1 - dropout_p)
    options = options if heads is None else options.with_groups(q.shape[-3], heads)
    last = max((number for number, x in enumerate((q, k, v)) if x.requires_grad), default=None)

    def slope(number: int, u: Any, g: NDArray, outputs: tuple[NDArray, AttentionState], *operands: NDArray) -> NDArray:
        gradient = gradients(Parts(u, kernel, "backward"), number, g, *outputs, operands, options)
        if number == last:
            outputs[1].shared.clear()
        return gradient

    def formula(u: Any, *operands: NDArray) -> tuple[NDArray, AttentionState]:
        return attend(Parts(u, kernel, "forward"), operands, options)

    slopes = tuple(partial(slope, number) for number in range(3))
    return q.from_result(composite_operation(ATTENTION, formula, slopes, q, k, v))


def masks_at(
    masks: list[NDArray], shape: tuple[int, ...], scores: NDArray
) -> tuple[NDArray[np.bool_] | None, tuple[NDArray, ...]]:
    """Return the booleans and the addends of masks of scores of this shape, on the device of an array."""
    for mask in masks:
        _check_mask(mask, shape)
    return split_masks(on_device_of(mask, scores) for mask in masks)


def scale_by_root(q: Tensor, k: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return query and key, each multiplied by the square root of |scale|.

    A negative scale flips the sign of the query.
    """
    root = math.sqrt(abs(scale))
    return q * math.copysign(root, scale), k * root


def attention_weights(q: Tensor, k: Tensor, masks: list[NDArray]) -> Tensor:
    """Return the weight of every key for every query, from a query and a key that are already scaled.

    A mask contains numbers that are added, or booleans that are True for the keys that take part.
    """
    return masked_softmax(q @ k.swapaxes(-1, -2), masks)


def masked_softmax(scores: Tensor, masks: list[NDArray]) -> Tensor:
    """Return the softmax of masked scores, and zeros for a query without any key."""
    allowed, addends = masks_at(masks, scores.shape, scores.numbers)
    for addend in addends:
        scores = scores + addend
    if not scores.shape[-1]:
        return scores  # empty: there are no keys
    if allowed is None or allowed.all():
        return scores.softmax(-1)
    # A query without any allowed key first gets weights for all keys, which are then replaced by zeros.
    sees = allowed.any(-1, keepdims=True)
    lowest = -np.inf if scores.format is None or scores.format.has_infinity else scores.format.min
    weights = where(allowed | ~sees, scores, lowest).softmax(-1)
    return weights if sees.all() else where(sees, weights, 0.0)


def _check_mask(mask: NDArray, shape: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(mask.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits or mask.dtype.kind not in "bf":
        raise ValueError(
            f"A mask must contain booleans or floats and broadcast to {shape} (..., queries, keys); got shape "
            f"{mask.shape} and dtype {mask.dtype}."
        )


def _without_additions(name: str, value: Any) -> None:
    """Raise ValueError for torch.nn's options that add keys and values."""
    if flag(name, value):
        raise ValueError("add_bias_kv and add_zero_attn must be False: they are not supported.")


def _as_size_or_none(name: str, value: Any) -> Any:
    """Return a positive integer, or None."""
    return None if value is None else as_size(name, value)


@with_options
class MultiHeadAttention(Layer):
    """Attention with `num_heads` heads, each on its own projections of query, key and value.

    The parameters are those of torch.nn.MultiheadAttention: ``in_proj_weight`` (3 * embed_dim, embed_dim),
    ``in_proj_bias`` and the linear layer ``out_proj``. If kdim or vdim differ from embed_dim, ``q_proj_weight``,
    ``k_proj_weight`` and ``v_proj_weight`` replace in_proj_weight. As in torch.nn, these weights start uniform in
    +-sqrt(6 / (rows + columns)), the weight of out_proj as in Linear, and biases at zero. Projections of one input are
    one contraction.

    Parameters:
        embed_dim: the size of query and of the output.
        num_heads: the number of heads, a divisor of embed_dim.
        dropout: the probability with which each weight is dropped in training.
        bias: False for projections without bias.
        add_bias_kv, add_zero_attn: must be False.
        kdim, vdim: the sizes of key and value; by default embed_dim.
        batch_first: True for inputs (N, L, ...) instead of (L, N, ...).
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if num_heads does not divide embed_dim; if add_bias_kv or
            add_zero_attn is true.

    Examples:
        >>> layer = sf.nn.MultiHeadAttention(8, num_heads=2, batch_first=True, rng=0)
        >>> x = np.ones((2, 5, 8))
        >>> with sf.simulate("bf16-standard"):
        ...     y, weights = layer(x, x, x)
        >>> y.shape, weights.shape
        ((2, 5, 8), (2, 5, 5))
    """

    embed_dim: int = option(as_size)
    num_heads: int = option(as_size)
    dropout: float = option(as_probability, default=0.0)
    has_bias: InitVar[bool] = option(flag, default=True, alias="bias")
    add_bias_kv: InitVar[bool] = option(_without_additions, default=False)
    add_zero_attn: InitVar[bool] = option(_without_additions, default=False)
    key_size: InitVar[int | None] = option(_as_size_or_none, default=None, alias="kdim")
    value_size: InitVar[int | None] = option(_as_size_or_none, default=None, alias="vdim")
    batch_first: bool = option(flag, default=False)
    _: KW_ONLY
    rng: InitVar[Seed] = option(anything, default=None)

    def _start(self, **arguments: Any) -> None:
        embed_dim = self.embed_dim
        self.kdim, self.vdim = arguments["kdim"] or embed_dim, arguments["vdim"] or embed_dim
        if embed_dim % self.num_heads:
            raise ValueError(f"embed_dim must be a multiple of num_heads, got {embed_dim} and {self.num_heads}.")
        generator = generator_of(arguments["rng"])
        shapes = {"in_proj_weight": (3 * embed_dim, embed_dim)}
        if not self.kdim == self.vdim == embed_dim:
            sizes = (embed_dim, self.kdim, self.vdim)
            shapes = {f"{name}_proj_weight": (embed_dim, size) for name, size in zip("qkv", sizes, strict=True)}
        for name, shape in shapes.items():
            bound = math.sqrt(6 / sum(shape))
            setattr(self, name, Parameter(generator.uniform(-bound, bound, shape)))
        self.in_proj_bias = Parameter(np.zeros(3 * embed_dim)) if arguments["bias"] else None
        self.out_proj = Linear(embed_dim, embed_dim, arguments["bias"], rng=generator)
        if self.out_proj.bias is not None:
            self.out_proj.bias.data[:] = 0

    def forward(
        self,
        query: Operand,
        key: Operand,
        value: Operand,
        key_padding_mask: ArrayLike | None = None,
        need_weights: bool = True,
        attn_mask: ArrayLike | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output of attention, with the shape of the query, and the attention weights.

        In all shapes below, L and N are exchanged, and S and N, if `batch_first` is True. The axis N may be absent.

        Parameters:
            query, key, value: arrays (L, N, embed_dim), (S, N, kdim) and (S, N, vdim).
            key_padding_mask: a mask (N, S): booleans that are True for keys to leave out, or numbers that are added to
                the scores.
            need_weights: False for None instead of the weights.
            attn_mask: a mask (L, S) or (N * num_heads, L, S), of the same two kinds.
            average_attn_weights: True for weights (N, L, S) averaged over heads, False for (N, num_heads, L, S).
            is_causal: True, without attn_mask, to leave out the keys after each query.

        Returns:
            The output and the weights; a query without any key gives zeros.

        Raises:
            ValueError: if the shapes do not fit.
        """
        check_flags(need_weights=need_weights, average_attn_weights=average_attn_weights, is_causal=is_causal)
        self._check(*(np.shape(x) for x in (query, key, value)))
        turns = self.batch_first and len(np.shape(query)) == 3
        projected = self._project(_with_axes_exchanged(query, key, value) if turns else [query, key, value])
        is_single = projected[0].ndim == 2
        q, k, v = (self._heads(x) for x in projected)
        masks = self._masks((*q.shape[:3], k.shape[2]), is_single, key_padding_mask, attn_mask, is_causal)
        size, dropped = self.embed_dim // self.num_heads, self.dropout if self.training else 0.0
        if need_weights:
            weights = attention_weights(q * math.sqrt(1 / size), k, masks)
            if self.training:
                weights = dropout(weights, self.dropout)
            attention = weights @ v
        else:
            attention = attention_composite(q, k, v, masks, 1 / math.sqrt(size), dropped)
        turned = attention.transpose((0, 2, 1, 3) if is_single else (2, 0, 1, 3))
        output = self.out_proj(turned.reshape(projected[0].shape))
        output = output.swapaxes(0, 1) if turns else output
        if not need_weights:
            return output, None
        shown = weights.mean(1) if average_attn_weights else weights
        return output, shown.squeeze(0) if is_single else shown

    def _check(self, query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> None:
        """Raise ValueError if the shapes of the inputs do not fit."""
        axis = 0 if self.batch_first else 1
        fits = len(query) == len(key) == len(value) in (2, 3) and key[:-1] == value[:-1]
        sizes = tuple(shape[-1] for shape in (query, key, value)) if fits else ()
        if sizes != (self.embed_dim, self.kdim, self.vdim) or (len(query) == 3 and query[axis] != key[axis]):
            first, second = ("(N, L, ", "(N, S, ") if self.batch_first else ("(L, N, ", "(S, N, ")
            raise ValueError(
                f"This attention takes query {first}{self.embed_dim}), key {second}{self.kdim}) and value "
                f"{second}{self.vdim}), all with N or all without; got {query}, {key} and {value}."
            )

    def _project(self, inputs: list[Operand]) -> list[Tensor]:
        """Return query, key and value of all heads, each with the axes of its input."""
        size, bias = self.embed_dim, self.in_proj_bias
        if not hasattr(self, "in_proj_weight"):
            weights: list[Parameter] = [getattr(self, f"{name}_proj_weight") for name in "qkv"]
            parts = [slice(i * size, (i + 1) * size) for i in range(3)]
            return [affine(x, w, bias, None, part) for x, w, part in zip(inputs, weights, parts, strict=True)]
        results: list[Tensor] = []
        while (first := len(results)) < 3:
            last = next((i for i in range(first, 3) if inputs[i] is not inputs[first]), 3)
            part = slice(first * size, last * size) if last < first + 3 else None
            product = affine(inputs[first], self.in_proj_weight, bias, part, part)
            results += product.split(size, -1) if last > first + 1 else [product]
        return results

    def _heads(self, x: Tensor) -> Tensor:
        """Reshape (L, N, embed_dim) or (L, embed_dim) to (N, heads, L, size of a head)."""
        examples = x if x.ndim == 3 else x.unsqueeze(0)
        parted = examples.reshape(*examples.shape[:2], self.num_heads, self.embed_dim // self.num_heads)
        return parted.transpose((1, 2, 0, 3) if x.ndim == 3 else (0, 2, 1, 3))

    def _masks(
        self,
        scores: tuple[int, ...],
        is_single: bool,
        key_padding_mask: ArrayLike | None,
        attn_mask: ArrayLike | None,
        is_causal: bool,
    ) -> list[NDArray]:
        """Return the masks for scores (N, heads, L, S), True for keys that take part."""
        examples, heads, queries, keys = scores
        masks = []
        if attn_mask is not None:
            shapes = {(queries, keys): (queries, keys), (examples * heads, queries, keys): scores}
            masks.append(_mask(attn_mask, "attn_mask", shapes))
        elif is_causal:
            masks.append(causal_mask(queries, keys))
        if key_padding_mask is not None:
            padding_shape = (keys,) if is_single else (examples, keys)
            masks.append(_mask(key_padding_mask, "key_padding_mask", {padding_shape: (examples, 1, 1, keys)}))
        return masks

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text, except defaults."""
        usual = {"dropout": 0.0, "kdim": self.embed_dim, "vdim": self.embed_dim, "batch_first": False}
        arguments = [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        bias = ["bias=False"] if self.in_proj_bias is None else []
        return ", ".join([str(self.embed_dim), str(self.num_heads), *bias, *arguments])


#: The spelling of torch.nn.
MultiheadAttention = MultiHeadAttention


def _with_axes_exchanged(*inputs: Operand) -> list[Operand]:
    """Return inputs (N, L, ...) as (L, N, ...), the order in which PyTorch sums gradients of weights.

    Inputs that are the same object remain the same object.
    """
    turned = {id(x): as_tensor(x).swapaxes(0, 1) for x in inputs}
    return [turned[id(x)] for x in inputs]


def _mask(values: ArrayLike, name: str, shapes: dict[tuple[int, ...], tuple[int, ...]]) -> NDArray:
    """Return a mask in the shape that belongs to its own shape; booleans are True for keys that take part."""
    mask = as_array(values)
    if mask.shape not in shapes or mask.dtype.kind not in "bf":
        raise ValueError(
            f"{name} must contain booleans or floats and have the shape {' or '.join(map(str, shapes))}, got shape "
            f"{mask.shape} and dtype {mask.dtype}."
        )
    mask = mask.reshape(shapes[mask.shape])
    return ~mask if mask.dtype == bool else mask


@with_options
class TransformerEncoderLayer(Layer):
    """Self-attention and two linear layers, each as a residual branch with a layer norm.

    The parts and their names are those of torch.nn.TransformerEncoderLayer: ``self_attn``, ``linear1``, ``linear2``,
    ``norm1``, ``norm2``, ``dropout``, ``dropout1`` and ``dropout2``.

    Parameters:
        d_model: the size of the last axis of the input and of the result.
        nhead: the number of heads, a divisor of d_model.
        dim_feedforward: the size between the two linear layers.
        dropout: the probability of dropout in attention and after the linear layers.
        activation: "relu" or "gelu", between the linear layers.
        layer_norm_eps: a number from 0, added to the variance in the layer norms.
        batch_first: True for inputs (N, L, d_model) instead of (L, N, d_model).
        norm_first: True if layer norms are at the start of both branches, as in GPT; False if they follow the residual
            sums, as in BERT.
        bias: False for parts without bias.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if the sizes do not fit; if `activation` is neither "relu" nor "gelu".

    Source: Vaswani et al., arXiv 1706.03762.

    Examples:
        >>> layer = sf.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 5, 8)))
        >>> y.shape
        (2, 5, 8)
    """

    d_model: InitVar[int] = option(as_size)
    nhead: InitVar[int] = option(anything)
    dim_feedforward: InitVar[int] = option(as_size, default=2048)
    p: InitVar[float] = option(anything, default=0.1, alias="dropout")
    activation: Literal["relu", "gelu"] = option(either("relu", "gelu"), default="relu")
    layer_norm_eps: InitVar[float] = option(anything, default=1e-5)
    batch_first: InitVar[bool] = option(flag, default=False)
    norm_first: bool = option(flag, default=False)
    bias: InitVar[bool] = option(flag, default=True)
    _: KW_ONLY
    rng: InitVar[Seed] = option(anything, default=None)

    def _start(self, **arguments: Any) -> None:
        names = ("d_model", "nhead", "dim_feedforward", "dropout", "layer_norm_eps", "batch_first", "bias")
        d_model, nhead, dim_feedforward, dropout, layer_norm_eps, batch_first, bias = (arguments[x] for x in names)
        generator = generator_of(arguments["rng"])
        self.self_attn = MultiHeadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, rng=generator)
        self.linear1 = Linear(d_model, dim_feedforward, bias, rng=generator)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, rng=generator)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(
        self,
        src: Operand,
        src_mask: ArrayLike | None = None,
        src_key_padding_mask: ArrayLike | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Map src (L, N, d_model) to the same shape.

        `src_mask`, `src_key_padding_mask` and `is_causal` are attn_mask, key_padding_mask and is_causal of
        MultiHeadAttention.
        """
        check_flags(is_causal=is_causal)
        x = as_tensor(src)
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._self_attention(self.norm1(x), *masks)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self._self_attention(x, *masks))
        return self.norm2(x + self._feed_forward(x))

    def _self_attention(self, x: Tensor, mask: ArrayLike | None, padding: ArrayLike | None, is_causal: bool) -> Tensor:
        output, _ = self.self_attn(
            x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout1(output)

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.linear1(x)
        inner = inner.relu() if self.activation == "relu" else inner.gelu()
        return self.dropout2(self.linear2(self.dropout(inner)))
