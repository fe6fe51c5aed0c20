"""What a run knows of a tensor's numbers, kept on the memory that they lie in, so that all views of it know it too.

Memory that several parameters share, as parts of one flat tensor, is known part by part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from simfloat.formats import BF16, E2M1, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, FP16, FP32, FP64, Format
from simfloat.simulation.widest import widest_format
from simfloat.torch.storage import TaggedParts, extent_of

#: The formats of PyTorch's floating types that numbers may travel as.
FORMAT_OF: dict[torch.dtype, Format] = {
    torch.float16: FP16,
    torch.bfloat16: BF16,
    torch.float32: FP32,
    torch.float64: FP64,
    torch.float8_e4m3fn: E4M3,
    torch.float8_e4m3fnuz: E4M3FNUZ,
    torch.float8_e5m2: E5M2,
    torch.float8_e5m2fnuz: E5M2FNUZ,
    torch.float8_e8m0fnu: E8M0,
    torch.float4_e2m1fn_x2: E2M1,
}

# PyTorch keeps the Python object of a storage as long as the storage lives, so an attribute of it is seen by all views,
# also by those that autograd makes in C++, and goes with the memory. A weak dictionary by tensor would see neither.
_NAME = "_simfloat_tag"

#: Under this name a rounded copy of a parameter, or of a view of one, has the tensor that it takes the place of.
STORED = "_simfloat_stored"


def stored_tensor(x: torch.Tensor) -> torch.Tensor:
    """The tensor that the program gave: a parameter's own where x is its rounded copy."""
    return getattr(x, STORED, x)


class Tag(NamedTuple):
    """The tag of numbers: their format, and their relation to a parameter."""

    format: Format | None = None  # what they were rounded to; None for data
    is_gradient: bool = False  # whether a backward pass made them
    owner: str | None = None  # the path of the parameter that they belong to
    is_weight: bool = False  # whether they are the parameter's own
    moment: str = ""  # the name of the optimizer's moment that they are
    node: int | None = None  # of autograd, whose backward pass made them
    events: Any = None  # events of the rounding that made a gradient, until it is known whether it is complete


NOTHING = Tag()


def tag_of(tensor: torch.Tensor) -> Tag:
    """Return the tag of a tensor's numbers."""
    tags: Tag | TaggedParts[Tag] = getattr(tensor.untyped_storage(), _NAME, NOTHING)
    return tags if isinstance(tags, Tag) else tags.at(tensor)


def put_tag(tensor: torch.Tensor, tag: Tag) -> None:
    """Know this of a tensor's numbers from now on."""
    storage = tensor.untyped_storage()
    tags = getattr(storage, _NAME, NOTHING)
    if isinstance(tags, Tag):
        setattr(storage, _NAME, tag)
    else:
        tags.change(tensor, tag)


def has_parts(tensor: torch.Tensor) -> bool:
    """Whether parts of the tensor's memory are known by themselves, of which it is none."""
    tags = getattr(tensor.untyped_storage(), _NAME, NOTHING)
    return not isinstance(tags, Tag) and tags.part(tensor) is None


def parts_of(tensor: torch.Tensor) -> list[tuple[torch.Tensor, Tag]]:
    """The parts of a tensor that are known by themselves, as vectors; none where it is known as a whole."""
    tags = getattr(tensor.untyped_storage(), _NAME, NOTHING)
    return [] if isinstance(tags, Tag) or not tensor.is_contiguous() else tags.within(tensor)


def put_own_tag(tensor: torch.Tensor, tag: Tag) -> None:
    """Know this of a tensor's numbers, and not of others in the same memory."""
    storage = tensor.untyped_storage()
    begin, end = extent_of(tensor)
    # All of the memory, as nearly always: one attribute, without a list of parts.
    if end - begin == storage.nbytes():
        setattr(storage, _NAME, tag)
        return
    tags = getattr(storage, _NAME, NOTHING)
    if isinstance(tags, Tag):
        tags = TaggedParts(tags)
        setattr(storage, _NAME, tags)
    tags.put(tensor, tag)


def stored_format(tensor: torch.Tensor) -> Format:
    """Return the format of a tensor's numbers: for data that of its type."""
    return tag_of(tensor).format or FORMAT_OF[tensor.dtype]


def in_type(tag: Tag, dtype: torch.dtype) -> Tag:
    """The tag of numbers that the program itself brought to a type, which may be too narrow for their format."""
    narrow = FORMAT_OF.get(dtype)
    if tag.format is None or narrow is None or widest_format((tag.format, narrow)) == narrow:
        return tag
    return tag._replace(format=narrow)


def weight_path(tensor: torch.Tensor) -> str | None:
    """The path of the parameter whose numbers these are; None for others."""
    tag = tag_of(tensor)
    return tag.owner if tag.is_weight else None


def forget_tag(tensor: torch.Tensor) -> None:
    """Know nothing of a tensor's numbers from now on."""
    put_tag(tensor, NOTHING)
