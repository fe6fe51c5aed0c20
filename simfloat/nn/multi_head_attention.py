"""Multi-head attention: Vaswani et al., arXiv 1706.03762, section 3.2.2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import as_array
from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.checks import check_flags
from simfloat.nn.attention import attention_composite, attention_weights, causal_mask
from simfloat.nn.dropout import dropout
from simfloat.nn.layer_arguments import as_probability, check_sizes
from simfloat.nn.linear import Linear
from simfloat.nn.module import Module
from simfloat.nn.seeds import generator_of

if TYPE_CHECKING:
    from simfloat.nn.seeds import Seed


class MultiHeadAttention(Module):
    """Attention of `num_heads` heads, each on its own projections of queries, keys and values.

    Parameters are those of torch.nn.MultiheadAttention: ``in_proj_weight`` (3 * embed_dim, embed_dim), or where kdim or
    vdim differ from embed_dim ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``; ``in_proj_bias``, and the
    linear layer ``out_proj``. They start as there: weights uniform in +-sqrt(6 / (rows + columns)), out_proj as Linear,
    biases at zero. `rng` as in Linear. Projections of one input are one contraction.

    Raises ValueError for sizes that do not fit, and for add_bias_kv and add_zero_attn, which there are not.

    Examples:
        >>> layer = sf.nn.MultiHeadAttention(8, num_heads=2, batch_first=True, rng=0)
        >>> x = np.ones((2, 5, 8))
        >>> with sf.simulate("bf16-standard"):
        ...     y, weights = layer(x, x, x)
        >>> y.shape, weights.shape
        ((2, 5, 8), (2, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        rng: Seed = None,
    ) -> None:
        super().__init__()
        check_flags(bias=bias, add_bias_kv=add_bias_kv, add_zero_attn=add_zero_attn, batch_first=batch_first)
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        check_sizes(embed_dim=embed_dim, num_heads=num_heads, kdim=self.kdim, vdim=self.vdim)
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim must be a multiple of num_heads, got {embed_dim} and {num_heads}.")
        if add_bias_kv or add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn must be False: there is no such attention here.")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, bool(batch_first)
        self.dropout = as_probability(dropout, "dropout")
        generator = generator_of(rng)
        shapes = {"in_proj_weight": (3 * embed_dim, embed_dim)}
        if not self.kdim == self.vdim == embed_dim:
            sizes = (embed_dim, self.kdim, self.vdim)
            shapes = {f"{name}_proj_weight": (embed_dim, size) for name, size in zip("qkv", sizes, strict=True)}
        for name, shape in shapes.items():
            bound = math.sqrt(6 / sum(shape))
            setattr(self, name, Parameter(generator.uniform(-bound, bound, shape)))
        self.in_proj_bias = Parameter(np.zeros(3 * embed_dim)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, rng=generator)
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
        """query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim) -> output like query, and the weights.

        With batch_first the axes are N, L; without N there is one example. Masks as in torch.nn.MultiheadAttention:
        truth values are True where a key is left out, numbers are added to the scores. key_padding_mask is (N, S),
        attn_mask (L, S) or (N * num_heads, L, S); is_causal without a mask leaves out the keys behind each query. The
        weights are (N, L, S), averaged over heads, or (N, num_heads, L, S); None without `need_weights`. A query that
        sees no key gets zeros.

        Raises ValueError for shapes that do not fit.
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
        """Raise ValueError unless the shapes of the inputs fit."""
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
        """Queries, keys and values of all heads, each with the axes of what it came from."""
        size, bias = self.embed_dim, self.in_proj_bias
        if not hasattr(self, "in_proj_weight"):
            weights: list[Parameter] = [getattr(self, f"{name}_proj_weight") for name in "qkv"]
            parts = [slice(i * size, (i + 1) * size) for i in range(3)]
            return [_affine(x, w, bias, None, part) for x, w, part in zip(inputs, weights, parts, strict=True)]
        results: list[Tensor] = []
        while (first := len(results)) < 3:
            last = next((i for i in range(first, 3) if inputs[i] is not inputs[first]), 3)
            part = slice(first * size, last * size) if last < first + 3 else None
            product = _affine(inputs[first], self.in_proj_weight, bias, part, part)
            results += product.split(size, -1) if last > first + 1 else [product]
        return results

    def _heads(self, x: Tensor) -> Tensor:
        """(L, N, embed_dim) or (L, embed_dim) -> (N, heads, L, size of a head)."""
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
        """The masks of scores (N, heads, L, S), True where a key takes part."""
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
        """The arguments that made it, where they are not the usual ones."""
        usual = {"dropout": 0.0, "kdim": self.embed_dim, "vdim": self.embed_dim, "batch_first": False}
        arguments = [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        bias = ["bias=False"] if self.in_proj_bias is None else []
        return ", ".join([str(self.embed_dim), str(self.num_heads), *bias, *arguments])


#: As torch.nn spells it.
MultiheadAttention = MultiHeadAttention


def _with_axes_exchanged(*inputs: Operand) -> list[Operand]:
    """Inputs (N, L, ...) as (L, N, ...), the order in which PyTorch adds weights' gradients; what is one stays one."""
    turned = {id(x): as_tensor(x).swapaxes(0, 1) for x in inputs}
    return [turned[id(x)] for x in inputs]


def _affine(x: Operand, weight: Parameter, bias: Parameter | None, rows: slice | None, part: slice | None) -> Tensor:
    """x times the transpose of rows of the weight, plus a part of the bias."""
    product = as_tensor(x).linear(weight, rows)
    return product if bias is None else product.add_bias(bias, part=part)


def _mask(values: ArrayLike, name: str, shapes: dict[tuple[int, ...], tuple[int, ...]]) -> NDArray:
    """A mask of one of the shapes, in that which belongs to it; its truth values say where a key takes part."""
    mask = as_array(values)
    if mask.shape not in shapes or mask.dtype.kind not in "bf":
        raise ValueError(
            f"{name} holds truth values or numbers and has the shape {' or '.join(map(str, shapes))}, got shape "
            f"{mask.shape} and dtype {mask.dtype}."
        )
    mask = mask.reshape(shapes[mask.shape])
    return ~mask if mask.dtype == bool else mask
