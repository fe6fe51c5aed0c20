"""Convert tensors to arrays and back, and store the tags of a run on them.

A tensor is identified by the memory that it is a view of. A run stores its tags on this memory, so all views share
them. If several parameters are parts of one flat tensor, each part has its own tag. Conversions copy only if the memory
layout requires it.

Other functions find the tensors among the arguments of operations, which read and write them, and of a call of the
model. Backward passes through tensors that torch.func wraps raise an error.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from operator import ge
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.codes import decode
from simfloat.arithmetic.machines import GPU, is_on_gpu, on_cpu, what_cuda_lacks
from simfloat.formats import BF16, E2M1, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, FP16, FP32, FP64, Format
from simfloat.simulation.place import widest_format
from simfloat.torch.open_run import without_dispatch

T = TypeVar("T")


def memory_of(x: torch.Tensor) -> int:
    """Return an identifier of the memory of a tensor and of all its views, valid as long as the memory exists."""
    # This is the address of the storage object. `data_ptr()` is 0 for every empty tensor, and changes when `set_` or
    # `resize_` gives the storage other bytes.
    return x.untyped_storage()._cdata


def extent_of(x: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of the memory of a tensor's elements, and the byte after the last one."""
    size, begin = x.element_size(), int(x.storage_offset())
    if x.is_contiguous():
        return begin * size, (begin + x.numel()) * size
    # From the first element to the last one, including the gaps of a strided view.
    steps = sum((int(length) - 1) * int(step) for length, step in zip(x.shape, x.stride(), strict=True))
    return begin * size, (begin + steps + 1) * size


class TaggedParts(Generic[T]):
    """The tag of one memory, and the tags of contiguous parts of it."""

    def __init__(self, whole: T) -> None:
        self._whole = whole  # the tag outside all parts
        self._begins: list[int] = []
        self._parts: list[tuple[int, T]] = []  # each with its end

    def at(self, x: torch.Tensor) -> T:
        """Return the tag of a tensor's values."""
        tag = self.part(x)
        return self._whole if tag is None else tag

    def part(self, x: torch.Tensor) -> T | None:
        """Return the tag of the part that contains a tensor; None if no single part does."""
        begin, end = extent_of(x)
        place = bisect_right(self._begins, begin) - 1
        return self._parts[place][1] if place >= 0 and end <= self._parts[place][0] else None

    def put(self, x: torch.Tensor, tag: T) -> None:
        """Set the tag of the part of the memory that is the tensor's; overlapping parts are forgotten."""
        begin, end = extent_of(x)
        if begin == end:
            return
        # Parts never overlap, so their ends are in the order of their beginnings.
        first = bisect_left([each for each, _ in self._parts], begin + 1)
        last = bisect_left(self._begins, end)
        self._begins[first:last], self._parts[first:last] = [begin], [(end, tag)]

    def within(self, x: torch.Tensor) -> list[tuple[torch.Tensor, T]]:
        """Return the parts inside a contiguous tensor, as vectors, with their tags."""
        (begin, end), size = extent_of(x), x.element_size()
        with without_dispatch(), torch.no_grad():
            return [
                (x.as_strided(((stop - start) // size,), (1,), start // size), tag)
                for start, (stop, tag) in zip(self._begins, self._parts, strict=True)
                if begin <= start and stop <= end
            ]

    def change(self, x: torch.Tensor, tag: T) -> None:
        """Set the tag of the part that contains a tensor; if no single part does, set the tag outside all parts."""
        begin, end = extent_of(x)
        place = bisect_right(self._begins, begin) - 1
        if place >= 0 and end <= self._parts[place][0]:
            self._parts[place] = self._parts[place][0], tag
        else:
            self._whole = tag


def view_like(x: torch.Tensor, plain: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return the view of `real` that corresponds to the view x of `plain`, which has the same layout.

    x may have another dtype for the same bytes.
    """
    if x is plain:
        return real
    records = torch.is_grad_enabled()
    try:  # torch.no_grad() in two calls of C, so that Ctrl-C cannot leave it open between them
        torch._C._set_grad_enabled(False)
        with without_dispatch():
            # Offsets are in bytes: x may be a view by another dtype, as x.view(torch.int32).
            begins = [each.storage_offset() * each.element_size() for each in (real, x, plain)]
            begin = (begins[0] + begins[1] - begins[2]) // x.element_size()
            if x.dtype == real.dtype:
                return real.as_strided(x.shape, x.stride(), begin)
            # `as_strided` keeps the dtype of `real`.
            return x.new_empty(0).set_(real.untyped_storage(), begin, x.shape, x.stride())
    finally:
        torch._C._set_grad_enabled(records)


#: A tensor, an array, or a Python number, which is an exact float64 operand.
Numbers = torch.Tensor | NDArray | float

#: Narrow dtypes; their values are converted to float32.
NARROW = (torch.float16, torch.bfloat16)

#: The dtype with two 4-bit values in a byte, the first one in the lower half, along the contiguous axis.
PAIRED = torch.float4_e2m1fn_x2

#: Dtypes of tensors that are read without a conversion.
WIDE = (torch.float32, torch.float64)


#: The type of the device of tensors that share their memory with NumPy arrays; others share it with CuPy arrays.
HOST = "cpu"


def array_on(x: torch.Tensor) -> Any:
    """Return the values of a tensor as an array on its device, without a copy."""
    if x.device.type == HOST:
        return x.numpy()
    if x.device.type not in ("cpu", "cuda") or GPU.module not in sys.modules:
        check_device(f"A tensor of shape {tuple(x.shape)}", x)
    # DLPack has no booleans in its older versions.
    arrays = GPU.arrays
    return arrays.from_dlpack(x.view(torch.uint8)).view(bool) if x.dtype == torch.bool else arrays.from_dlpack(x)


def check_device(name: str, x: torch.Tensor) -> None:
    """Raise ValueError, with the name, if the device of a tensor has no arrays."""
    if x.device.type == HOST:
        return
    if x.device.type == "meta":
        raise ValueError(
            f"{name} is on meta, where tensors have no values; create the model and its data on a device with values. "
            "model.to_empty(device='cpu') and then model.load_state_dict(...) give a model its values."
        )
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name} is on {x.device}; use a CPU or an NVIDIA GPU: model.cpu() and x.cpu().")
    if (missing := what_cuda_lacks()) is not None:
        raise ValueError(
            f"{name} is on {x.device}, where tensors are simulated by CuPy and numba-cuda; {missing}: "
            "pip install 'simfloat[cuda]', or use model.cpu() and x.cpu()."
        )


def tensor_on(array: Any) -> torch.Tensor:
    """Return the values of an array as a tensor on its device, without a copy."""
    return torch.from_numpy(array) if type(array) is np.ndarray else torch.from_dlpack(array)


def numbers_of(x: Numbers) -> NDArray:
    """Return an operand as an array: float32 or float64; integers and booleans become float64."""
    if isinstance(x, torch.Tensor):
        # `numpy()` raises an error for tensors that require a gradient. `detach` is an operation, so it is called only
        # for these.
        x = x.detach() if x.requires_grad else x
        if x.dtype in WIDE:
            return x.numpy() if x.device.type == HOST else array_on(x)
        if x.dtype == PAIRED:
            return _unpack_pairs(x)
        if x.itemsize < 4 and x.is_floating_point():
            # NumPy has no bfloat16 and no float8. float32 can represent all values of these types.
            return array_on(x.float())
        array = array_on(x)
        return array if x.is_floating_point() else integers(array)
    if isinstance(x, np.ndarray):
        return x
    other: Any = x
    return other if is_on_gpu(other) else np.array(float(x))


def host_numbers(x: Numbers) -> NDArray:
    """Return an operand as a NumPy array, for operations that are computed on the CPU."""
    return on_cpu(numbers_of(x))


def _unpack_pairs(x: torch.Tensor) -> NDArray[np.float32]:
    """Return the values of pairs; there are twice as many along the contiguous axis."""
    if x.ndim > 1 and x.stride(-1) != 1:
        return _unpack_pairs(x.transpose(-1, -2)).swapaxes(-1, -2)
    codes = array_on(x.view(torch.uint8))
    pairs = np.stack([codes & 15, codes >> 4], -1)
    return decode(pairs.reshape(*x.shape[:-1], 2 * x.shape[-1]), E2M1)


def integers(array: NDArray) -> NDArray[np.float64]:
    """Convert integers and booleans to float64; raise ValueError for an integer that float64 cannot represent."""
    wide = array.astype(np.float64)
    # Starting with 2^53, float64 cannot represent all integers: these few are compared one by one, exactly, in Python.
    for number in array[np.abs(wide) >= 2**53].tolist():
        if int(float(number)) != number:
            raise ValueError(
                f"An operand contains the integer {number}, which float64 cannot represent: use simfloat.round, "
                "which rounds it once."
            )
    return wide


def tensor_of(array: NDArray, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of this dtype on the memory of the array, or on a copy of it."""
    if type(array) is not np.ndarray:
        if is_on_gpu(array):
            # The results of CuPy have the strides of their operands; copies are in C order.
            tensor = torch.from_dlpack(array if array.flags.c_contiguous else array.copy(order="C"))
            return tensor if tensor.dtype == dtype else tensor.to(dtype)
        array = np.asarray(array)
    # torch.from_numpy also accepts strides, but PyTorch's kernels return contiguous results, and later layouts follow
    # them.
    if not array.flags.c_contiguous or not array.flags.writeable:
        array = array.copy(order="C")
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def match_layout(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """Return the tensor in the memory layout of `model`, as elementwise operations do with their results."""
    if model.is_contiguous() or model.shape != tensor.shape or is_row_major(model):
        return tensor
    return torch.empty_like(model, dtype=tensor.dtype).copy_(tensor)


def is_row_major(tensor: torch.Tensor) -> bool:
    """True if the axes are in the order of a contiguous tensor; the tensor may be a part of one."""
    steps = [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    return all(map(ge, steps, steps[1:]))


def result_type(operands: Sequence[torch.Tensor]) -> torch.dtype:
    """Return the floating-point dtype of PyTorch's result of an operation on these tensors."""
    first = operands[0].dtype
    if first.is_floating_point and all([x.dtype == first for x in operands]):
        return first
    floating = [x for x in operands if x.is_floating_point()]
    # PyTorch's promotion: 0-dimensional tensors do not widen others of the same kind.
    counting = [x for x in floating if x.ndim] or floating
    types = {x.dtype for x in counting}
    if len(types) == 1:
        return types.pop()
    # float8 types have no common type in PyTorch; other types take precedence
    wide = [x for x in types if x.itemsize > 1]
    return reduce(torch.promote_types, wide) if wide else torch.float32


def in_float32(value: Any) -> Any:
    """Round the Python numbers in arguments to float32, as PyTorch's kernels for at most 32 bits do.

    The numbers are Python floats, or 0-dimensional float64 tensors.
    """
    if isinstance(value, torch.Tensor):
        return value.float().double() if value.ndim == 0 and value.dtype == torch.float64 else value
    if isinstance(value, dict):
        return {key: in_float32(x) for key, x in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(in_float32, value))
    return float(np.float32(value)) if isinstance(value, float) else value


def exact_tensor(x: torch.Tensor | float) -> torch.Tensor:
    """Convert a Python number to a float64 tensor, which does not widen the results of others.

    A floating-point tensor stays unchanged; an integer tensor is converted to PyTorch's default dtype.
    """
    if not isinstance(x, torch.Tensor):
        return torch.tensor(float(x), dtype=torch.float64)
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def check_unwrapped(tensors: Iterable[Any]) -> None:
    """Raise ValueError for tensors of torch.func's functions, and if one of these functions runs."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise wrapped_gradients()
    for x in tensors:
        if isinstance(x, torch.Tensor):
            try:
                x.untyped_storage()
            except NotImplementedError:  # it has no own memory, by which tensors are identified
                raise wrapped_gradients() from None


def wrapped_gradients() -> ValueError:
    """Return the error for gradients that torch.func computes, or for several gradients in one call."""
    return ValueError(
        "Gradients by torch.func, or with is_grads_batched=True, cannot be simulated: tensors are wrapped there, "
        "so it is unknown which operand a gradient belongs to. Use backward(), or torch.autograd.grad in a loop, "
        "with create_graph=True for gradients of gradients."
    )


Tensor = torch.Tensor


def tensors_in(result: Any) -> Iterator[Tensor]:
    """Yield the tensors of a module's result: one, or several in a list, a tuple or a dictionary."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping | list | tuple):
        for value in result.values() if isinstance(result, Mapping) else result:
            yield from tensors_in(value)


@cache
def is_view(function: Any) -> bool:
    """True if an operation returns views of the memory of an operand."""
    # The schema marks aliases: `Tensor(a)` is a view, `Tensor(a!)` is written to.
    schema = getattr(function, "_schema", None)  # a higher-order operation has no schema
    aliases = (x.alias_info for x in schema.arguments) if schema is not None else ()
    return any(x is not None and not x.is_write for x in aliases)


def written_by(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors that an operation writes to."""
    for number, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(arguments[number] if number < len(arguments) else options.get(argument.name))


def read_by(function: Any, arguments: tuple[Any, ...], read: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """Apply `read` to the tensors among the arguments, except the tensors that are written to."""
    return tuple(
        [
            value
            if is_written or isinstance(value, int | float)
            else read(value)
            if isinstance(value, Tensor)
            else replace_tensors(value, read)
            for value, is_written in zip(arguments, _are_written(function), strict=False)
        ]
    )


@cache
def _are_written(function: Any) -> tuple[bool, ...]:
    """Return for each argument of an operation if it is written to."""
    aliases = [x.alias_info for x in function._schema.arguments]
    return tuple([alias is not None and alias.is_write for alias in aliases])


def replace_tensors(value: Any, real: Callable[[Tensor], Tensor]) -> Any:
    """Replace the tensors in an argument, or in several."""
    if isinstance(value, Tensor):
        return real(value)
    if isinstance(value, dict):
        return {key: replace_tensors(x, real) for key, x in value.items()}
    # Exactly these types: a NamedTuple needs its fields as separate arguments, not a generator.
    return type(value)(replace_tensors(x, real) for x in value) if type(value) in (list, tuple) else value


def call_model(model: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
    """Call a model. If PyTorch raises TypeError, raise ValueError with the arguments that were passed, and advice."""
    try:
        return model(*arguments, **named)
    except TypeError as error:
        kinds = ", ".join(type(argument).__name__ for argument in (*arguments, *named.values()))
        raise ValueError(
            f"{type(model).__name__} cannot be called with these arguments ({kinds}): {str(error).rstrip('.')}. "
            "Pass its arguments as tensors: torch.as_tensor(x) converts an array."
        ) from error


#: The formats of PyTorch's floating-point dtypes.
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

# PyTorch keeps the Python object of a storage as long as the storage exists. So all views share an attribute of it,
# including views that autograd creates in C++, and it disappears with the memory. A weak dictionary by tensor would
# have neither property.
_NAME = "_simfloat_tag"

#: Attribute of a rounded copy of a parameter (or of a view): the original tensor.
STORED = "_simfloat_stored"


def stored_tensor(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor of the program: the original of a rounded copy of a parameter, otherwise x."""
    return getattr(x, STORED, x)


class Narrow(NamedTuple):
    """The format of values before the program converted them to float32, and the path of the module that did it."""

    format: Format
    path: str | None
    is_of_dtype: bool = False  # True for data after a conversion by a dtype, which may be the dtype of 16-bit values


class Tag(NamedTuple):
    """The tag of values: their format, and their relation to a parameter."""

    format: Format | None = None  # the format of their last rounding; None for data
    is_gradient: bool = False  # True if a backward pass computed them
    owner: str | None = None  # the path of the parameter that they belong to
    is_weight: bool = False  # True if they are the values of the parameter
    moment: str = ""  # the name of the optimizer's moment that they are
    node: int | None = None  # the number of the autograd node of the backward pass that computed them
    events: Any = None  # events of the rounding of a gradient, until it is known if the gradient is complete
    narrow: Narrow | None = None  # the format before an upcast of these values, or of an operand of theirs


NOTHING = Tag()


def tag_of(tensor: torch.Tensor) -> Tag:
    """Return the tag of a tensor's values."""
    tags: Tag | TaggedParts[Tag] = getattr(tensor.untyped_storage(), _NAME, NOTHING)
    return tags if isinstance(tags, Tag) else tags.at(tensor)


def before_upcast(tensors: Iterable[torch.Tensor]) -> Narrow | None:
    """Return the origin of the upcast values that a tensor depends on, for the first such tensor.

    Programs write `labels.to(x.dtype)` with 16-bit values x. An operation of both has a 16-bit result. As in PyTorch's
    promotion, a 0-dimensional tensor does not widen others.
    """
    operands = list(tensors)
    tags = [tag_of(x) for x in operands if x.ndim] or [tag_of(x) for x in operands]
    upcasts = [tag.narrow for tag in tags if tag.narrow is not None]
    if upcasts and any(tag.format is not None and tag.format.precision < FP32.precision for tag in tags):
        upcasts = [narrow for narrow in upcasts if not narrow.is_of_dtype]
    return next((narrow for narrow in upcasts if not narrow.is_of_dtype), upcasts[0] if upcasts else None)


def tagged_tensor(array: NDArray, tag: Tag) -> torch.Tensor:
    """Return a new float32 tensor of these values, with a tag."""
    tensor = tensor_of(array, torch.float32)
    setattr(tensor.untyped_storage(), _NAME, tag)
    return tensor


def put_tag(tensor: torch.Tensor, tag: Tag) -> None:
    """Set the tag of a tensor's values."""
    storage = tensor.untyped_storage()
    tags = getattr(storage, _NAME, NOTHING)
    if isinstance(tags, Tag):
        setattr(storage, _NAME, tag)
    else:
        tags.change(tensor, tag)


def has_parts(tensor: torch.Tensor) -> bool:
    """True if parts of the tensor's memory have their own tags, and the tensor is not inside one of them."""
    tags = getattr(tensor.untyped_storage(), _NAME, NOTHING)
    return not isinstance(tags, Tag) and tags.part(tensor) is None


def parts_of(tensor: torch.Tensor) -> list[tuple[torch.Tensor, Tag]]:
    """Return the parts of a tensor with their own tags, as vectors; none if there is one tag for all of it."""
    tags = getattr(tensor.untyped_storage(), _NAME, NOTHING)
    return [] if isinstance(tags, Tag) or not tensor.is_contiguous() else tags.within(tensor)


def put_own_tag(tensor: torch.Tensor, tag: Tag) -> None:
    """Set the tag of a tensor's values, but not of others in the same memory."""
    storage = tensor.untyped_storage()
    begin, end = extent_of(tensor)
    # Nearly always this is all of the memory: one attribute, without a list of parts.
    if end - begin == storage.nbytes():
        setattr(storage, _NAME, tag)
        return
    tags = getattr(storage, _NAME, NOTHING)
    if isinstance(tags, Tag):
        tags = TaggedParts(tags)
        setattr(storage, _NAME, tags)
    tags.put(tensor, tag)


def stored_format(tensor: torch.Tensor) -> Format:
    """Return the format of a tensor's values; for data, the format of its dtype."""
    return tag_of(tensor).format or FORMAT_OF[tensor.dtype]


def in_type(tag: Tag, dtype: torch.dtype) -> Tag:
    """Return the tag after a conversion to a dtype by the program; the dtype may be narrower than the format."""
    narrow = FORMAT_OF.get(dtype)
    if tag.format is None or narrow is None or widest_format((tag.format, narrow)) == narrow:
        return tag
    return tag._replace(format=narrow)


def weight_path(tensor: torch.Tensor) -> str | None:
    """Return the path of the parameter with these values; None for other tensors."""
    tag = tag_of(tensor)
    return tag.owner if tag.is_weight else None


def forget_tag(tensor: torch.Tensor) -> None:
    """Remove the tag of a tensor's values."""
    put_tag(tensor, NOTHING)
