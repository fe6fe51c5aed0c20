"""Scaled casts and the sums of their elements, one value at a time, from the self-test."""

from simfloat.tools.selftest.orders import (
    block_dot,
    block_scales,
    clamped_quotient,
    elements,
    largest,
    product,
    tensor_scale,
    whole_dot,
)

__all__ = [
    "block_dot", "block_scales", "clamped_quotient", "elements", "largest", "product", "tensor_scale", "whole_dot",
]  # fmt: skip
