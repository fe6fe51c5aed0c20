"""Tensors as arrays and back, and what a run knows of their numbers.

Tensors are known by the memory that they are views of. A run keeps what it knows of a tensor's numbers on this memory,
so that all views know it too; memory that several parameters share, as parts of one flat tensor, is known part by part.
Conversions make no copy where memory allows it.

Other functions find the tensors among the arguments of operations, which read and write them, and of a model's call.
Backward passes through tensors that torch.func wraps are refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from operator import ge
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.codes import decode
from simfloat.formats import BF16, E2M1, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, FP16, FP32, FP64, Format
from simfloat.simulation.place import widest_format
from simfloat.torch.open_run import without_dispatch

T = TypeVar("T")


def memory_of(x: torch.Tensor) -> int:
    """Return an identifier of the memory of a tensor and of all its views, valid as long as it lives."""
    # The address of the storage object. `data_ptr()` is 0 for every empty tensor, and changes when `set_` or `resize_`
    # gives the storage other bytes.
    return x.untyped_storage()._cdata


def extent_of(x: torch.Tensor) -> tuple[int, int]:
    """The first byte of the memory that a tensor's elements lie in, and the one behind the last."""
    size, begin = x.element_size(), int(x.storage_offset())
    if x.is_contiguous():
        return begin * size, (begin + x.numel()) * size
    # From the first element to the last one; gaps of a strided view belong to it.
    steps = sum((int(length) - 1) * int(step) for length, step in zip(x.shape, x.stride(), strict=True))
    return begin * size, (begin + steps + 1) * size


class TaggedParts(Generic[T]):
    """The tag of one memory, and the tags of parts of it that lie one behind the other."""

    def __init__(self, whole: T) -> None:
        self._whole = whole  # what is known where no part is
        self._begins: list[int] = []
        self._parts: list[tuple[int, T]] = []  # each with its end

    def at(self, x: torch.Tensor) -> T:
        """Return the tag of a tensor's numbers."""
        tag = self.part(x)
        return self._whole if tag is None else tag

    def part(self, x: torch.Tensor) -> T | None:
        """Return the tag of the part that contains a tensor; None if no single part does."""
        begin, end = extent_of(x)
        place = bisect_right(self._begins, begin) - 1
        return self._parts[place][1] if place >= 0 and end <= self._parts[place][0] else None

    def put(self, x: torch.Tensor, tag: T) -> None:
        """Know this of the part that is the tensor's, and nothing more of those that it overlaps."""
        begin, end = extent_of(x)
        if begin == end:
            return
        # Parts never overlap, so their ends ascend as their beginnings do.
        first = bisect_left([each for each, _ in self._parts], begin + 1)
        last = bisect_left(self._begins, end)
        self._begins[first:last], self._parts[first:last] = [begin], [(end, tag)]

    def within(self, x: torch.Tensor) -> list[tuple[torch.Tensor, T]]:
        """The parts inside of a tensor whose elements lie one behind the other, as vectors, with what is known."""
        (begin, end), size = extent_of(x), x.element_size()
        with without_dispatch(), torch.no_grad():
            return [
                (x.as_strided(((stop - start) // size,), (1,), start // size), tag)
                for start, (stop, tag) in zip(self._begins, self._parts, strict=True)
                if begin <= start and stop <= end
            ]

    def change(self, x: torch.Tensor, tag: T) -> None:
        """Know this of the part that a tensor lies in, or where it lies in no single one, of what is no part."""
        begin, end = extent_of(x)
        place = bisect_right(self._begins, begin) - 1
        if place >= 0 and end <= self._parts[place][0]:
            self._parts[place] = self._parts[place][0], tag
        else:
            self._whole = tag


def view_like(x: torch.Tensor, plain: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """The view of `real` that x is of `plain`, which is laid out alike; x may show its bytes as another type."""
    if x is plain:
        return real
    records = torch.is_grad_enabled()
    try:  # torch.no_grad() in two calls of C, between which Ctrl-C cannot leave it open
        torch._C._set_grad_enabled(False)
        with without_dispatch():
            # In bytes: x may be a view by another type, as x.view(torch.int32).
            begins = [each.storage_offset() * each.element_size() for each in (real, x, plain)]
            begin = (begins[0] + begins[1] - begins[2]) // x.element_size()
            if x.dtype == real.dtype:
                return real.as_strided(x.shape, x.stride(), begin)
            # `as_strided` keeps the type of `real`.
            return x.new_empty(0).set_(real.untyped_storage(), begin, x.shape, x.stride())
    finally:
        torch._C._set_grad_enabled(records)


#: A tensor, an array, or a Python number, which is an exact float64 operand.
Numbers = torch.Tensor | NDArray | float

#: Narrow types, whose numbers travel as float32.
NARROW = (torch.float16, torch.bfloat16)

#: The type of two numbers of 4 bits to a byte, the first one in its lower half, along the axis that memory runs along.
PAIRED = torch.float4_e2m1fn_x2

#: Types whose numbers are read where they are.
WIDE = (torch.float32, torch.float64)


def numbers_of(x: Numbers) -> NDArray:
    """The array of an operand: float32 or float64; integers and truth values become float64."""
    if isinstance(x, torch.Tensor):
        # `numpy()` refuses tensors that want a gradient; detach is an operation, so it is called for these only.
        x = x.detach() if x.requires_grad else x
        if x.dtype in WIDE:
            return x.numpy()
        if x.dtype == PAIRED:
            return _unpack_pairs(x)
        if x.itemsize < 4 and x.is_floating_point():
            # NumPy has no bfloat16 and no float8. Every number of these types is a float32 one.
            return x.float().numpy()
        array = x.numpy()
        return array if x.is_floating_point() else integers(array)
    return x if isinstance(x, np.ndarray) else np.array(float(x))


def _unpack_pairs(x: torch.Tensor) -> NDArray[np.float32]:
    """The numbers of pairs, of which there are twice as many along the axis whose elements are next to each other."""
    if x.ndim > 1 and x.stride(-1) != 1:
        return _unpack_pairs(x.transpose(-1, -2)).swapaxes(-1, -2)
    codes = x.view(torch.uint8).numpy()
    pairs = np.stack([codes & 15, codes >> 4], -1)
    return decode(pairs.reshape(*x.shape[:-1], 2 * x.shape[-1]), E2M1)


def integers(array: NDArray) -> NDArray[np.float64]:
    """Integers and truth values in float64; ValueError for an integer that float64 lacks."""
    wide = array.astype(np.float64)
    # From 2^53 on float64 lacks some integers: these few are compared one by one, exactly, in Python.
    for number in array[np.abs(wide) >= 2**53].tolist():
        if int(float(number)) != number:
            raise ValueError(
                f"An operand holds the integer {number}, which float64 lacks: simfloat.round rounds such numbers once."
            )
    return wide


def tensor_of(array: NDArray, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of this type on the array's memory, or on a copy of it."""
    array = np.asarray(array)
    # torch.from_numpy takes strides, too, but PyTorch's kernels return contiguous results, and later layouts follow
    # them.
    if not array.flags.c_contiguous or not array.flags.writeable:
        array = array.copy(order="C")
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def match_layout(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """The tensor in memory that is laid out as that of `model`, as elementwise operations lay out their results."""
    if model.is_contiguous() or model.shape != tensor.shape or is_row_major(model):
        return tensor
    return torch.empty_like(model, dtype=tensor.dtype).copy_(tensor)


def is_row_major(tensor: torch.Tensor) -> bool:
    """Whether axes follow each other as in a contiguous tensor, of which it may be a part."""
    steps = [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    return all(map(ge, steps, steps[1:]))


def result_type(operands: Sequence[torch.Tensor]) -> torch.dtype:
    """The floating type that PyTorch gives the result of an operation on these tensors."""
    first = operands[0].dtype
    if first.is_floating_point and all([x.dtype == first for x in operands]):
        return first
    floating = [x for x in operands if x.is_floating_point()]
    # PyTorch's promotion: tensors without axes do not widen others of the same kind.
    counting = [x for x in floating if x.ndim] or floating
    types = {x.dtype for x in counting}
    if len(types) == 1:
        return types.pop()
    wide = [x for x in types if x.itemsize > 1]  # float8 types, which PyTorch promotes to none, yield to others
    return reduce(torch.promote_types, wide) if wide else torch.float32


def in_float32(value: Any) -> Any:
    """An argument, or several, whose Python numbers are float32 ones, as PyTorch's kernels of up to 32 bits take them.

    They come as such, or as float64 tensors without axes.
    """
    if isinstance(value, torch.Tensor):
        return value.float().double() if value.ndim == 0 and value.dtype == torch.float64 else value
    if isinstance(value, dict):
        return {key: in_float32(x) for key, x in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(in_float32, value))
    return float(np.float32(value)) if isinstance(value, float) else value


def exact_tensor(x: torch.Tensor | float) -> torch.Tensor:
    """A Python number as a float64 tensor, which does not widen the results of others; a floating tensor as it is.

    Integers become numbers of PyTorch's default type.
    """
    if not isinstance(x, torch.Tensor):
        return torch.tensor(float(x), dtype=torch.float64)
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def check_unwrapped(tensors: Iterable[Any]) -> None:
    """Raise ValueError for tensors of torch.func's functions, and where one of these runs."""
    is_inside = torch._C._functorch.peek_interpreter_stack() is not None
    if is_inside or any(isinstance(x, torch.Tensor) and not _has_memory(x) for x in tensors):
        raise ValueError(
            "Gradients by torch.func, or with is_grads_batched=True, cannot be simulated: tensors are wrapped there, "
            "and nothing tells whose gradient a result is. Use backward(), or torch.autograd.grad in a loop, with "
            "create_graph=True for gradients of gradients."
        )


def _has_memory(x: torch.Tensor) -> bool:
    """Whether a tensor has memory of its own, by which it is known."""
    try:
        x.untyped_storage()
    except NotImplementedError:
        return False
    return True


Tensor = torch.Tensor


def tensors_in(result: Any) -> Iterator[Tensor]:
    """The tensors of what a module gives: one, or several in a list, a tuple or a dictionary."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping | list | tuple):
        for value in result.values() if isinstance(result, Mapping) else result:
            yield from tensors_in(value)


@cache
def is_view(function: Any) -> bool:
    """Whether an operation gives other views of the memory of an operand."""
    # The schema marks aliases: `Tensor(a)` is a view, `Tensor(a!)` is written to.
    schema = getattr(function, "_schema", None)  # a program as an operation has none
    aliases = (x.alias_info for x in schema.arguments) if schema is not None else ()
    return any(x is not None and not x.is_write for x in aliases)


def written_by(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation writes to."""
    for number, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(arguments[number] if number < len(arguments) else options.get(argument.name))


def read_by(function: Any, arguments: tuple[Any, ...], read: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """The arguments, each but those that are written to as `read` has it."""
    return tuple(
        [
            value if is_written else read(value) if isinstance(value, Tensor) else replace_tensors(value, read)
            for value, is_written in zip(arguments, _are_written(function), strict=False)
        ]
    )


@cache
def _are_written(function: Any) -> tuple[bool, ...]:
    """Of each argument of an operation whether it is written to."""
    aliases = [x.alias_info for x in function._schema.arguments]
    return tuple([alias is not None and alias.is_write for alias in aliases])


def replace_tensors(value: Any, real: Callable[[Tensor], Tensor]) -> Any:
    """An argument, or several, with other tensors."""
    if isinstance(value, Tensor):
        return real(value)
    if isinstance(value, dict):
        return {key: replace_tensors(x, real) for key, x in value.items()}
    # Exactly these types: a NamedTuple takes its fields one by one, and no generator.
    return type(value)(replace_tensors(x, real) for x in value) if type(value) in (list, tuple) else value


def call_model(model: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
    """Call a model. Raise ValueError with what was passed, and what to pass, where PyTorch raises TypeError."""
    try:
        return model(*arguments, **named)
    except TypeError as error:
        kinds = ", ".join(type(argument).__name__ for argument in (*arguments, *named.values()))
        raise ValueError(
            f"{type(model).__name__} cannot be called with what was given ({kinds}): {error} Pass what it is called "
            "with, as tensors: torch.as_tensor(x) makes one of an array."
        ) from error


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
