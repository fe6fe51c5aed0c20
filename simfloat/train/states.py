"""States on disk: `save` and `load`, the file that they write, and the trees that it holds.

States are those of models, optimizers, schedules, simulations and recorders. Serialization turns trees of dicts, lists,
tuples, numbers, text and arrays to JSON and back. A number, text, True, False and None stand for themselves; of
everything else there is an object with one key that says its kind: ``{"tuple": [1, 2]}``. Arrays are kept aside, and a
tree holds their numbers in the list; of PyTorch's tensors also the name of their type, of arrays of a format also their
arithmetic.

A file is written whole or not at all, with a checksum. It holds a line that names its kind, a line of JSON, the arrays
in NumPy's own format one after another, and the SHA-256 digest of all this. Nothing in it is ever executed.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.format import read_array, write_array
from numpy.typing import NDArray

from simfloat.arithmetic import BitStream, GivenBits
from simfloat.arithmetic.machines import on_cpu
from simfloat.arrays import Array
from simfloat.arrays.arithmetic import ArrayArithmetic, as_arithmetic
from simfloat.arrays.array import new_array as array_of_format
from simfloat.common import check_parent, file_path
from simfloat.environment import in_usual_environment
from simfloat.policy.text import parse, text_of


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of PyTorch, which exists only where PyTorch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def array_of_tensor(tensor: Any, where: str) -> tuple[NDArray, str]:
    """The numbers of a tensor as they are stored, and the name of its type; those that NumPy lacks as their codes.

    Raises ValueError, saying where, for a tensor that is no plain array of numbers.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise ValueError(
            f"{where} is a tensor of {tensor.dtype}, {tensor.layout} on {tensor.device}; a file holds none."
        )
    name = str(tensor.dtype).removeprefix("torch.")
    with _disable_current_modes():
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        codes = _code_type(tensor.dtype)
        return np.asarray((plain if codes is None else plain.contiguous().view(codes)).numpy()), name


def restore_tensor(array: NDArray, name: str) -> Any:
    """The tensor of this type that `array_of_tensor` made an array of."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("These states are of a PyTorch model: pip install 'simfloat[torch]'.") from error
    from torch.utils._python_dispatch import _disable_current_modes

    dtype = getattr(torch, name)
    with _disable_current_modes():
        plain = torch.from_numpy(np.array(array))
        return plain if _code_type(dtype) is None else plain.view(dtype)


def _code_type(dtype: Any) -> Any:
    """The integers that the numbers of a type are written as; None if NumPy has the type."""
    import torch

    if dtype == torch.bfloat16:
        return torch.int16
    return torch.uint8 if dtype.is_floating_point and dtype.itemsize == 1 else None


#: Kinds of arrays that a file can hold: truth values, integers, floating-point and complex numbers.
KINDS = "biufc"

#: How deep dicts, lists and tuples may be nested.
DEEPEST = 100


def encode(value: Any, arrays: list[NDArray], where: str, depth: int = 0) -> Any:
    """The tree as JSON takes it, its arrays added to `arrays`; ValueError, saying where, for what cannot be kept."""
    if depth > DEEPEST:
        raise ValueError(f"{where.split('[')[0]} contains itself, or is nested more than {DEEPEST} deep.")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if is_tensor(value):
        array, name = array_of_tensor(value, where)
        arrays.append(array)
        return {"tensor": [len(arrays) - 1, name]}
    if isinstance(value, Array):
        arrays.append(on_cpu(value.numbers))
        return {"of format": [len(arrays) - 1, _arithmetic_texts(value.arithmetic, where)]}
    value = on_cpu(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if isinstance(value, np.ma.MaskedArray):
            raise ValueError(f"{where} is a masked array, whose mask a file would lose; save its data and its mask.")
        if array.dtype.kind not in KINDS or not array.dtype.isnative:
            raise ValueError(f"{where} is an array of {array.dtype}; a file holds numbers in the machine's byte order.")
        arrays.append(array)
        return {"array" if isinstance(value, np.ndarray) else "scalar": len(arrays) - 1}
    if isinstance(value, Mapping):
        pairs = [
            [encode(key, arrays, where), encode(x, arrays, f"{where}[{key!r}]", depth + 1)] for key, x in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [encode(x, arrays, f"{where}[{number}]", depth + 1) for number, x in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    raise ValueError(
        f"{where} is a {type(value).__name__}; a file holds dicts, lists, tuples, arrays, numbers, text and None."
    )


def decode(tree: Any, arrays: Sequence[NDArray]) -> Any:
    """The value that `encode` made a tree of."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind == "tensor":
        return restore_tensor(arrays[content[0]], content[1])
    if kind == "of format":
        return _formatted_array(arrays[content[0]], content[1])
    if kind == "dict":
        return {decode(key, arrays): decode(x, arrays) for key, x in content}
    items = [decode(x, arrays) for x in content]
    return tuple(items) if kind == "tuple" else items


def _arithmetic_texts(arithmetic: ArrayArithmetic, where: str) -> dict[str, Any]:
    """Return the options of an array as JSON values."""
    accumulate, stream = arithmetic.accumulate, arithmetic.stream
    if isinstance(stream, GivenBits):
        raise ValueError(f"{where} takes its random bits from GivenBits, which a file does not hold; give a BitStream.")
    texts = {"format": repr(arithmetic.format), "rounding": str(arithmetic.rounding)}
    return texts | {
        "accumulate": None if accumulate is None else text_of("accumulate", accumulate),
        "stream": None if stream is None else stream.state,
        "complex_products": arithmetic.complex_products,
    }


def _formatted_array(numbers: NDArray, texts: dict[str, Any]) -> Array:
    """Return the array with these numbers and the options that `_arithmetic_texts` wrote."""
    accumulate, stream = texts["accumulate"], texts["stream"]
    arithmetic = as_arithmetic(
        parse(texts["format"]),
        texts["rounding"],
        None if accumulate is None else parse(accumulate),
        None if stream is None else BitStream.from_state(stream),
        texts["complex_products"],
    )
    return array_of_format(np.array(numbers), arithmetic)


MAGIC = b"simfloat states 1\n"
DIGEST_SIZE = sha256().digest_size

#: How the name of a file ends while it is being written; it begins with a dot then.
UNFINISHED = ".unfinished"


class DamagedFile(ValueError):
    """A file is not what was written: cut off, changed, or no file of states at all."""


def write(path: Path, states: Mapping[str, Any]) -> None:
    """Write states by name; what was at `path` before stays whole until all of it has reached the disk.

    Raises ValueError for what a file cannot hold, and OSError naming the path where it cannot be written.
    """
    check_parent(path)
    arrays: list[NDArray] = []
    header = {name: encode(state, arrays, name) for name, state in states.items()}
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        try:
            with open(unfinished, "xb") as file:
                _write_checked(file, header, arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def read(path: Path) -> dict[str, Any]:
    """The states in a file by name; DamagedFile, naming it, unless it is what was written."""
    content = memoryview(path.read_bytes())  # of which slices are no copies
    if content[: len(MAGIC)] != MAGIC:
        raise DamagedFile(f"{path} is no file that simfloat.save wrote, or its beginning is damaged.")
    if sha256(content[:-DIGEST_SIZE]).digest() != content[-DIGEST_SIZE:]:
        raise DamagedFile(f"{path} is damaged: its checksum is not that of its content.")
    source = io.BytesIO(content[len(MAGIC) : -DIGEST_SIZE])
    try:
        header = json.loads(source.readline())
        arrays = [read_array(source, allow_pickle=False) for _ in range(header["arrays"])]
        return {name: decode(tree, arrays) for name, tree in header["states"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{path} is whole, but holds no states that simfloat.save wrote: {error}") from error


def read_state(path: Path, name: str) -> Any:
    """The state of this name, which holds no arrays, without a look at the rest; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            if file.readline() != MAGIC:
                return None
            return decode(json.loads(file.readline())["states"][name], [])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


class _DigestingFile:
    """A file whose content is digested while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.file.write(data)


def _write_checked(file: BinaryIO, states: Mapping[str, Any], arrays: list[NDArray]) -> None:
    """The content of a file, and its digest."""
    hashing = _DigestingFile(file)
    hashing.write(MAGIC)
    hashing.write(json.dumps({"arrays": len(arrays), "states": states}).encode() + b"\n")
    for array in arrays:
        write_array(hashing, np.asanyarray(array), allow_pickle=False)
    file.write(hashing.digest.digest())


def _sync_folder(folder: Path) -> None:
    """Let the new name reach the disk, where the system can open folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


__all__ = ["load", "save"]


@in_usual_environment
def save(path: str | os.PathLike[str], **parts: Any) -> None:
    """Write the states of models, optimizers, loss scales, schedules, simulations and recorders to a file by name.

        sf.save("run.states", model=model, optimizer=optimizer, simulation=sim, epoch=3)

    A part has `state_dict` and `load_state_dict`, as PyTorch's have too, or as a simulation `state` and `load_state`.
    Numbers, text, arrays, those of :func:`simfloat.array` too, tensors of PyTorch, and lists, tuples and dicts of them
    are kept as they are. The file is
    complete or not there at all: what stood at `path` before is replaced once all has reached the disk, and `load`
    knows from a checksum whether it is what was written.

    Raises ValueError for a part that cannot be kept, and OSError where the file cannot be written.

    Examples:
        >>> model = sf.nn.Linear(2, 1, rng=0)
        >>> sf.save(folder / "model.npz", model=model)
        >>> sf.load(folder / "model.npz", model=sf.nn.Linear(2, 1))
        {'model': {'weight': array([[ 0.19369308, -0.32557075]]), 'bias': array([-0.64916147])}}
    """
    target = file_path(path)
    if not parts:
        raise ValueError("save takes what is to be saved by name, such as model=model; got nothing.")
    write(target, part_states(parts))


@in_usual_environment
def load(path: str | os.PathLike[str], **parts: Any) -> dict[str, Any]:
    """Restore what `save` wrote into models, optimizers, loss scales, schedules, simulations and recorders, by name.

        epoch = sf.load("run.states", model=model, optimizer=optimizer, simulation=sim)["epoch"]

    Gives the states of all parts that the file holds by name, those that are not restored too. A training of
    which all parts are restored, the simulation with its random streams too, goes on with the same bits as if it had
    not been interrupted.

    Raises OSError where the file cannot be read, and ValueError, naming the file, if it is damaged, or if a part is not
    in it or does not fit; then nothing is restored.

    Examples:
        >>> model, other = sf.nn.Linear(2, 1, rng=0), sf.nn.Linear(2, 1, rng=1)
        >>> sf.save(folder / "model.npz", model=model)
        >>> parts = sf.load(folder / "model.npz", model=other)
        >>> bool(np.all(other.weight.data == model.weight.data))
        True
    """
    source = file_path(path)
    states = read(source)
    restore_parts(source, states, parts)
    return states


def part_states(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of each part by its name."""
    return {name: _part_state(part) for name, part in parts.items()}


def restore_parts(source: Path, states: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """Bring the parts into these states: all of them, or none if one does not fit."""
    for name, part in parts.items():
        if name not in states:
            raise ValueError(f"{source} holds no {name!r}; it holds {', '.join(states)}.")
        if not has_state(part):
            raise ValueError(f"{name} is restored into a model, optimizer or other part, not a {type(part).__name__}.")
    before = deepcopy(part_states(parts))  # the state of a PyTorch model shares its memory
    begun: list[str] = []
    try:
        for name, part in parts.items():
            begun.append(name)
            _load_part(part, states[name])
    except Exception as error:  # whatever a state of another kind is refused with, by parts of others too
        for name in begun[:-1]:
            _load_part(parts[name], before[name])
        with suppress(Exception):  # others than ours may have taken half of it
            _load_part(parts[begun[-1]], before[begun[-1]])
        what = "" if isinstance(error, ValueError | RuntimeError) else f"{type(error).__name__}: "
        raise ValueError(f"{begun[-1]} in {source} does not fit: {what}{error}") from error


def has_state(part: Any) -> bool:
    """Whether it has a state that can be restored."""
    return not isinstance(part, type) and (hasattr(part, "load_state_dict") or hasattr(part, "load_state"))


def _part_state(part: Any) -> Any:
    if not has_state(part):
        return part
    return part.state_dict() if hasattr(part, "load_state_dict") else part.state


def _load_part(part: Any, state: Any) -> None:
    if "torch" in sys.modules and isinstance(part, sys.modules["torch"].optim.Optimizer):
        from simfloat.train.torch_states import check_moments

        check_moments(part, state)
    load = part.load_state_dict if hasattr(part, "load_state_dict") else part.load_state
    load(state)
