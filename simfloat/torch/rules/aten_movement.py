"""Operations that move, choose, make or compare numbers, and round none but those put among others: PyTorch's names."""

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

#: Those among them that choose numbers: what they choose of a parameter is an activation, not the parameter.
CHOOSING = frozenset("embedding index index_select gather take masked_select where".split())

#: Those that make numbers like others in shape alone, or count others.
MAKING = frozenset("full_like rand_like randn_like new_full histc randint_like".split())

#: Those that write to their first operand.
OVERWRITING = frozenset(
    """
    copy_ fill_ zero_ normal_ uniform_ bernoulli_ trunc_normal_ exponential_ geometric_ cauchy_ log_normal_ random_
    masked_fill_ index_fill_
    scatter_ index_copy_ masked_scatter_ set_ resize_ eye_ tril_ triu_ squeeze_ unsqueeze_ transpose_ t_ detach_
    requires_grad_ as_strided_ resize_as_
    """.split()
)

#: Those among them that write to all elements.
FILLING = frozenset("copy_ fill_".split())

#: Those among them that write no numbers but zeros and ones, which every format has.
KEEPING = frozenset(
    """
    zero_ bernoulli_ eye_ tril_ triu_ squeeze_ unsqueeze_ transpose_ t_ detach_ requires_grad_ as_strided_
    """.split()
)
