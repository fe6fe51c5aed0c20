"""A layer of a transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from numpy.typing import ArrayLike

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.checks import check_flags
from simfloat.nn.dropout import Dropout
from simfloat.nn.layer_arguments import check_sizes
from simfloat.nn.layer_norm import LayerNorm
from simfloat.nn.linear import Linear
from simfloat.nn.module import Module
from simfloat.nn.multi_head_attention import MultiHeadAttention
from simfloat.nn.seeds import generator_of

if TYPE_CHECKING:
    from simfloat.nn.seeds import Seed


class TransformerEncoderLayer(Module):
    """Self-attention and two linear layers, each beside a path that skips it: Vaswani et al., arXiv 1706.03762.

    Arguments, parts and their names are those of torch.nn.TransformerEncoderLayer: ``self_attn``, ``linear1`` (to
    dim_feedforward), ``linear2``, ``norm1``, ``norm2`` and dropout. Layer norms come behind the sums, as in BERT, or
    with `norm_first` at the beginning of both branches, as in GPT. `rng` as in Linear.

    Raises ValueError for sizes that do not fit, and for an activation other than "relu" and "gelu".

    Examples:
        >>> layer = sf.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 5, 8)))
        >>> y.shape
        (2, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Literal["relu", "gelu"] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        rng: Seed = None,
    ) -> None:
        super().__init__()
        check_flags(batch_first=batch_first, norm_first=norm_first, bias=bias)
        check_sizes(d_model=d_model, dim_feedforward=dim_feedforward)
        if activation not in ("relu", "gelu"):
            raise ValueError(f"activation must be 'relu' or 'gelu', got {activation!r}.")
        generator = generator_of(rng)
        self.self_attn = MultiHeadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, rng=generator)
        self.linear1 = Linear(d_model, dim_feedforward, bias, rng=generator)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, rng=generator)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation, self.norm_first = activation, bool(norm_first)

    def forward(
        self,
        src: Operand,
        src_mask: ArrayLike | None = None,
        src_key_padding_mask: ArrayLike | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src (L, N, d_model) -> the same shape; axes and masks as in MultiHeadAttention."""
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

    def extra_repr(self) -> str:
        """What its parts do not show."""
        return f"activation={self.activation!r}, norm_first={self.norm_first}"
