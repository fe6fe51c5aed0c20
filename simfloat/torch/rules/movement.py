"""Define operations that move, choose, create or compare values, by PyTorch's names, and their backward passes.

They do not round, except a number that is put among other values. In the backward pass, the gradients of a value that
was moved to several positions are added. Comparisons find the elements that equal a maximum, minimum or median.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from simfloat.formats import E2M1, E8M0, nearest_even
from simfloat.formats.rounding import toward_negative, toward_positive
from simfloat.simulation.place import Place
from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.forward_log import is_recomputing, place_observed_once
from simfloat.torch.handlers import Handler, Movement, Rule
from simfloat.torch.narrowing import ProgramCast
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.scattering import add_at, element_numbers
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import FORMAT_OF, NOTHING, Tag, array_on, numbers_of, tensor_of

MOVEMENT = frozenset(
    """
    _to_copy view _unsafe_view reshape _reshape_alias view_as_real t transpose permute expand expand_as clone
    contiguous slice select unsqueeze squeeze cat stack split unsafe_split unsafe_split_with_sizes split_with_sizes
    unbind unsafe_chunk chunk detach alias as_strided lift lift_fresh lift_fresh_copy diagonal unfold roll flip
    repeat repeat_interleave tril triu diag_embed movedim index gather index_select embedding masked_fill
    masked_select masked_scatter where constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d
    replication_pad2d pixel_shuffle pixel_unshuffle channel_shuffle im2col select_backward slice_backward
    diagonal_backward select_scatter slice_scatter scatter.src scatter.value take narrow_copy expand_copy view_copy
    index_fill new_empty new_zeros new_ones new_empty_strided zeros_like ones_like empty_like
    bernoulli bernoulli.p rand randn multinomial zeros ones full empty eq ne lt le gt ge isnan
    isinf isfinite isclose equal signbit logical_not logical_and logical_or argmax argmin argsort sort topk any all
    nonzero count_nonzero is_nonzero searchsorted bucketize _local_scalar_dense _assert_async upsample_nearest1d
    upsample_nearest2d upsample_nearest3d resolve_conj resolve_neg zero fill isin unique_dim _unique2 allclose
    is_same_size diagonal_copy rot90 block_diag reflection_pad3d replication_pad3d max_unpool2d max_unpool3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    isposinf isneginf logical_xor index_copy nonzero_static unique_consecutive diagonal_scatter as_strided_scatter
    _has_same_storage_numel _new_zeros_with_same_feature_meta
    masked_scatter_backward heaviside _pack_padded_sequence _pack_padded_sequence_backward
    alias_copy as_strided_copy detach_copy permute_copy select_copy slice_copy split_copy split_with_sizes_copy
    hash_tensor resize_as
    lu_unpack frexp
    squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy _chunk_cat _unsafe_masked_index
    """.split()
)

#: Operations that choose values: a value that was chosen from a parameter is an activation, not a parameter.
CHOOSING = frozenset("embedding index index_select gather take masked_select where".split())

#: Operations that create values with the shape of others, or count others.
MAKING = frozenset("full_like rand_like randn_like new_full histc randint_like".split())

#: Operations that write to their first operand.
OVERWRITING = frozenset(
    """
    copy_ fill_ zero_ normal_ uniform_ bernoulli_ trunc_normal_ exponential_ geometric_ cauchy_ log_normal_ random_
    masked_fill_ index_fill_
    scatter_ index_copy_ masked_scatter_ set_ resize_ eye_ tril_ triu_ squeeze_ unsqueeze_ transpose_ t_ detach_
    requires_grad_ as_strided_ resize_as_
    """.split()
)

#: Operations among them that write to all elements.
FILLING = frozenset("copy_ fill_".split())

#: Operations among them that write only zeros and ones, which every format contains.
KEEPING = frozenset(
    """
    zero_ bernoulli_ eye_ tril_ triu_ squeeze_ unsqueeze_ transpose_ t_ detach_ requires_grad_ as_strided_
    """.split()
)


_aten = torch.ops.aten


class Adjoint(Rule):
    """The backward pass of a movement: `movement` is applied to the indices of a tensor with the operand's shape."""

    def __init__(self, operation: str, movement: Callable[..., torch.Tensor], size_at: int) -> None:
        super().__init__(operation, self.compute)
        self.movement, self.size_at = movement, size_at  # the position of the argument with the shape of the operand

    def compute(self, call: RuleCall, g: torch.Tensor, *options: Any) -> torch.Tensor:
        """Return the values of g, added at the positions that they came from."""
        reached = options[self.size_at]
        x = g.new_zeros(reached.shape if isinstance(reached, torch.Tensor) else tuple(reached))
        # The movement itself shows the new position of each element: it is applied to the indices of elements.
        # PyTorch's kernels of upsampling and im2col do not support integers (torch 2.13); float64 represents all
        # indices below 2^53.
        places = self.movement(element_numbers(x).double(), *options).long()
        return add_at(call, x, places, numbers_of(g))


def padding_movement(name: str) -> Callable[..., torch.Tensor]:
    """Return a function that pads an image with its own pixels."""
    pad = getattr(_aten, name)
    return lambda x, _, padding: pad(x, padding)


def upsampling_movement(name: str) -> Callable[..., torch.Tensor]:
    """Return a function that repeats the pixels of an image."""
    upsample = getattr(_aten, name)
    return lambda x, size, _, *scales: upsample(x, size, *scales)


def col2im(
    call: RuleCall, x: torch.Tensor, size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> torch.Tensor:  # fmt: skip
    """Return images of the sums of overlapping windows; values in the border are left out."""
    image = torch.zeros(*x.shape[:-2], x.shape[-2] // math.prod(kernel), *size, dtype=x.dtype, device=x.device)
    # Indices start with 1: the border is filled with 0.
    places = _aten.im2col((element_numbers(image) + 1).double(), kernel, dilation, padding, stride).long()
    inside = places > 0
    return add_at(call, image, places[inside] - 1, numbers_of(x)[array_on(inside)])


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "col2im": Rule("index", col2im),
    "unfold_backward": Adjoint("index", lambda x, _, *window: x.unfold(*window), 0),
    **{
        f"{name}_backward": Adjoint("index", padding_movement(name), 0)
        for name in (f"{way}_pad{axes}d" for way in ("reflection", "replication") for axes in (1, 2, 3))
    },
    **{
        f"{name}_backward": Adjoint("index", upsampling_movement(name), 1)
        for name in (f"{way}{axes}d" for way in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3))
    },
}


#: Operations with a derivative that compares operand and result: max, min and median; scatter_reduce.
COMPARING = ("max", "min", "index")


class Matches(Movement):
    """A comparison of two tensors; in the backward pass of `max` and similar operations, the operands are rounded.

    The result of these operations was rounded, so it may differ from all operands of a wider format. With stochastic
    rounding, an element matches if it may have been rounded to the result.
    """

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the booleans."""
        node = run.backward_nodes.current()
        note = None if node is None else node.note
        place = None if note is None or note.place.operation not in COMPARING else note.place.without_observer
        are_floating = all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args)
        if place is None or place.is_widest or not are_floating:
            return super().__call__(run, func, args, options, into)
        modes = [place.forward.target.rounding]
        if modes[0].is_stochastic:
            # A stochastic result is one of the two neighbours.
            modes = [toward_negative, toward_positive]
        is_match = torch.zeros((), dtype=torch.bool, device=args[0].device)
        for u in map(place.forward.with_rounding, modes):
            is_match = is_match | func(*(tensor_of(u.round(numbers_of(x)), x.dtype) for x in args))
        return is_match


class Conversion(Movement):
    """A conversion to another dtype. Under a policy that follows the dtypes of the program, an observer counts it."""

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch."""
        result = super().__call__(run, func, args, options, into)
        if run.simulation.observer is not None:
            count_conversion(run, run.place_of_movement(func), args[0], result.dtype)
        return result


def count_conversion(run: RunContext, place: Place, x: torch.Tensor, dtype: torch.dtype) -> None:
    """Pass the events of a conversion to a narrower dtype to the observer, as the operation "cast"."""
    if not (dtype.is_floating_point and x.is_floating_point() and dtype.itemsize < x.dtype.itemsize):
        return
    format, node = FORMAT_OF[dtype], run.backward_nodes.current()
    if format in (E8M0, E2M1) or run.optimizing.optimizer is not None or is_recomputing():
        return
    if node is not None:
        if node.note is None:
            return
        place = place_observed_once(node.note.place)
    if place.is_written:
        # PyTorch's conversion to this one type saturates.
        rounding = nearest_even.saturating() if dtype == torch.float8_e4m3fn else nearest_even
        cast = ProgramCast.at(place, format, rounding, "forward" if node is None else "backward")
        if cast.target.observer is not None:
            cast.round(numbers_of(x))


#: Rules, by PyTorch's name.
TABLE |= {"eq.Tensor": Matches(), "_to_copy": Conversion()}
