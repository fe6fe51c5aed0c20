"""States on disk: `save` and `load`, their file, and the trees in it.

States are those of models, optimizers, schedules, simulations and recorders. `encode` converts trees of dicts, lists,
tuples, numbers, text and arrays to JSON, and `decode` converts them back. Numbers, text, True, False and None represent
themselves. Every other value is an object with one key, its kind: ``{"tuple": [1, 2]}``. Arrays are stored separately,
and the tree contains their positions in the list. For a PyTorch tensor it also contains the name of the dtype, and for
an array of a format its arithmetic.

A file is written atomically, with a checksum. It consists of a line that names its kind, a line of JSON, the arrays in
NumPy's own format one after another, and the SHA-256 digest of all this. Nothing in it is ever executed.
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
from simfloat.environment import in_usual_environment, parse_json
from simfloat.policy.text import parse, text_of


def is_tensor(value: Any) -> bool:
    """True if the value is a PyTorch tensor, which requires that PyTorch was imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def array_of_tensor(tensor: Any, where: str) -> tuple[NDArray, str]:
    """Return the stored values of a tensor as an array, and the name of its dtype.

    A dtype that NumPy does not have is returned as its codes. Raises ValueError, with the name `where`, if the tensor
    is not a plain array of numbers.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise ValueError(
            f"{where} is a tensor of {tensor.dtype}, {tensor.layout} on {tensor.device}; such tensors are not saved."
        )
    name = str(tensor.dtype).removeprefix("torch.")
    with _disable_current_modes():
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        codes = _code_type(tensor.dtype)
        return np.asarray((plain if codes is None else plain.contiguous().view(codes)).numpy()), name


def restore_tensor(array: NDArray, name: str) -> Any:
    """Return the tensor of this dtype from the result of `array_of_tensor`."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("These states contain PyTorch tensors: pip install 'simfloat[torch]'.") from error
    from torch.utils._python_dispatch import _disable_current_modes

    dtype = getattr(torch, name)
    with _disable_current_modes():
        plain = torch.from_numpy(np.array(array))
        return plain if _code_type(dtype) is None else plain.view(dtype)


def _code_type(dtype: Any) -> Any:
    """Return the integer dtype in which values of a dtype are stored; None if NumPy has the dtype."""
    import torch

    if dtype == torch.bfloat16:
        return torch.int16
    return torch.uint8 if dtype.is_floating_point and dtype.itemsize == 1 else None


#: Kinds of arrays in a file: booleans, integers, floating-point and complex numbers.
KINDS = "biufc"

#: The largest depth of nested dicts, lists and tuples.
DEEPEST = 100


def encode(value: Any, arrays: list[NDArray], where: str, depth: int = 0, streams: dict[int, int] | None = None) -> Any:
    """Return the tree as JSON types, and append its arrays to `arrays`.

    `streams` contains a number for each stream of an array, by the identity of the stream; pass one dictionary for all
    trees of a file. Raises ValueError, with the name `where`, for a value that cannot be saved.
    """
    streams = {} if streams is None else streams
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
        return {"of format": [len(arrays) - 1, _arithmetic_texts(value.arithmetic, where, streams)]}
    value = on_cpu(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if isinstance(value, np.ma.MaskedArray):
            raise ValueError(f"{where} is a masked array, and its mask would be lost; save its data and its mask.")
        if array.dtype.kind not in KINDS or not array.dtype.isnative:
            raise ValueError(f"{where} is an array of {array.dtype}; save numbers in the byte order of this computer.")
        arrays.append(array)
        return {"array" if isinstance(value, np.ndarray) else "scalar": len(arrays) - 1}
    if isinstance(value, Mapping):
        pairs = [
            [encode(key, arrays, where), encode(x, arrays, f"{where}[{key!r}]", depth + 1, streams)]
            for key, x in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [encode(x, arrays, f"{where}[{number}]", depth + 1, streams) for number, x in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    raise ValueError(f"{where} is a {type(value).__name__}; save dicts, lists, tuples, arrays, numbers, text and None.")


def decode(tree: Any, arrays: Sequence[NDArray], streams: dict[int, BitStream] | None = None) -> Any:
    """Return the value of a tree from `encode`; pass one dictionary `streams` for all trees of a file."""
    streams = {} if streams is None else streams
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
        return _formatted_array(arrays[content[0]], content[1], streams)
    if kind == "dict":
        return {decode(key, arrays): decode(x, arrays, streams) for key, x in content}
    items = [decode(x, arrays, streams) for x in content]
    return tuple(items) if kind == "tuple" else items


def _arithmetic_texts(arithmetic: ArrayArithmetic, where: str, streams: dict[int, int]) -> dict[str, Any]:
    """Return the options of an array as JSON types."""
    accumulate, stream = arithmetic.accumulate, arithmetic.stream
    if isinstance(stream, GivenBits):
        raise ValueError(f"{where} uses GivenBits as its stream, which cannot be saved; use a BitStream.")
    texts = {"format": repr(arithmetic.format), "rounding": str(arithmetic.rounding)}
    return texts | {
        "accumulate": None if accumulate is None else text_of("accumulate", accumulate),
        "stream": None if stream is None else stream.state,
        # Arrays with the same number share a stream.
        "stream number": None if stream is None else streams.setdefault(id(stream), len(streams)),
        "complex_products": arithmetic.complex_products,
    }


def _formatted_array(numbers: NDArray, texts: dict[str, Any], streams: dict[int, BitStream]) -> Array:
    """Return the array with these values and the options from `_arithmetic_texts`."""
    accumulate, state, number = texts["accumulate"], texts["stream"], texts.get("stream number")
    stream = None if state is None else BitStream.from_state(state)
    if stream is not None and number is not None:  # older files have no numbers: each of their arrays has a stream
        stream = streams.setdefault(number, stream)
    arithmetic = as_arithmetic(
        parse(texts["format"]),
        texts["rounding"],
        None if accumulate is None else parse(accumulate),
        stream,
        texts["complex_products"],
    )
    return array_of_format(np.array(numbers), arithmetic)


MAGIC = b"simfloat states 1\n"
DIGEST_SIZE = sha256().digest_size

#: The end of a file's name while it is being written; the name then begins with a dot.
UNFINISHED = ".unfinished"


class DamagedFile(ValueError):
    """A file is not as it was written: truncated, changed, or not a file of states at all."""


def write(path: Path, states: Mapping[str, Any]) -> None:
    """Write states by name; an earlier file at `path` is replaced only after all data have reached the disk.

    Raises ValueError for a value that cannot be saved, and OSError, which names the path, if it is not writable.
    """
    check_parent(path)
    arrays: list[NDArray] = []
    streams: dict[int, int] = {}
    header = {name: encode(state, arrays, name, streams=streams) for name, state in states.items()}
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
    """Return the states in a file by name; raise DamagedFile, which names the file, if it is not as it was written."""
    content = memoryview(path.read_bytes())  # slices of it are not copies
    if content[: len(MAGIC)] != MAGIC:
        raise DamagedFile(f"{path} is not a file of simfloat.save, or its beginning is damaged.")
    if sha256(content[:-DIGEST_SIZE]).digest() != content[-DIGEST_SIZE:]:
        raise DamagedFile(f"{path} is damaged: its checksum does not match its content.")
    source = io.BytesIO(content[len(MAGIC) : -DIGEST_SIZE])
    try:
        header = parse_json(source.readline())
        arrays = [read_array(source, allow_pickle=False) for _ in range(header["arrays"])]
        streams: dict[int, BitStream] = {}
        return {name: decode(tree, arrays, streams) for name, tree in header["states"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{path} is complete, but its states were not written by simfloat.save: {error}") from error


def read_state(path: Path, name: str) -> Any:
    """Return one state that contains no arrays, without reading the rest; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            if file.readline() != MAGIC:
                return None
            return decode(parse_json(file.readline())["states"][name], [])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


class _DigestingFile:
    """A file that is digested while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.file.write(data)


def _write_checked(file: BinaryIO, states: Mapping[str, Any], arrays: list[NDArray]) -> None:
    """Write the content of a file, and its digest."""
    hashing = _DigestingFile(file)
    hashing.write(MAGIC)
    hashing.write(json.dumps({"arrays": len(arrays), "states": states}).encode() + b"\n")
    for array in arrays:
        write_array(hashing, np.asanyarray(array), allow_pickle=False)
    file.write(hashing.digest.digest())


def _sync_folder(folder: Path) -> None:
    """Make sure that the new name has reached the disk, on systems that can open folders."""
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

    The file is written atomically: it replaces an earlier file at `path` only after all data have reached the disk.
    `load` verifies a checksum.

    Parameters:
        path: the path of the file.
        parts: the parts by name. A part has `state_dict` and `load_state_dict`, as PyTorch objects do, or `state` and
            `load_state`, as a simulation does. Numbers, text, NumPy arrays, arrays of :func:`simfloat.array`, PyTorch
            tensors, and lists, tuples and dicts of them are saved unchanged. Arrays that share a stream also share
            one after `load`.

    Raises:
        ValueError: if a part cannot be saved.
        OSError: if the file cannot be written.

    Examples:
        >>> model = sf.nn.Linear(2, 1, rng=0)
        >>> sf.save(folder / "model.npz", model=model)
        >>> sf.load(folder / "model.npz", model=sf.nn.Linear(2, 1))
        {'model': {'weight': array([[ 0.19369308, -0.32557075]]), 'bias': array([-0.64916147])}}
    """
    target = file_path(path)
    if not parts:
        raise ValueError("save takes parts by name, such as model=model; got nothing.")
    write(target, part_states(parts))


@in_usual_environment
def load(path: str | os.PathLike[str], **parts: Any) -> dict[str, Any]:
    """Restore the states in a file of `save` into models, optimizers, schedules and other parts; return all states.

        epoch = sf.load("run.states", model=model, optimizer=optimizer, simulation=sim)["epoch"]

    If you restore all parts of a training, including the simulation with its random streams, it continues with the same
    bits as without interruption. Dropout in PyTorch models uses PyTorch's generator, which is another part: save
    ``random=torch.get_rng_state()``, and pass ``load(...)["random"]`` to ``torch.set_rng_state``.

    Parameters:
        path: the path of the file.
        parts: the parts to restore, by their names in the file.

    Returns:
        The states of all parts in the file by name, including parts that were not restored.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the file is damaged; if a part is not in it or does not fit. Nothing is restored then.

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
    """Return the state of each part by its name."""
    return {name: _part_state(part) for name, part in parts.items()}


def restore_parts(source: Path, states: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """Restore the states of the parts; if one does not fit, restore none."""
    for name, part in parts.items():
        if name not in states:
            raise ValueError(f"{source} contains no {name!r}; it contains {', '.join(states)}.")
        if not has_state(part):
            raise ValueError(f"{name} must be a model, an optimizer or another part, got a {type(part).__name__}.")
    before = deepcopy(part_states(parts))  # the state of a PyTorch model shares its memory
    begun: list[str] = []
    try:
        for name, part in parts.items():
            begun.append(name)
            _load_part(part, states[name])
    except Exception as error:  # parts of other packages may raise any error for a state that does not fit
        for name in begun[:-1]:
            _load_part(parts[name], before[name])
        with suppress(Exception):  # a part of another package may have loaded half of the state
            _load_part(parts[begun[-1]], before[begun[-1]])
        what = "" if isinstance(error, ValueError | RuntimeError) else f"{type(error).__name__}: "
        raise ValueError(f"{begun[-1]} in {source} does not fit: {what}{error}") from error


def has_state(part: Any) -> bool:
    """True if the part has a state that can be restored."""
    return not isinstance(part, type) and (hasattr(part, "load_state_dict") or hasattr(part, "load_state"))


def _part_state(part: Any) -> Any:
    # An array also has a state, but arrays that share a stream would not share it after `load`.
    if not has_state(part) or isinstance(part, Array):
        return part
    return part.state_dict() if hasattr(part, "load_state_dict") else part.state


def _load_part(part: Any, state: Any) -> None:
    if "torch" in sys.modules and isinstance(part, sys.modules["torch"].optim.Optimizer):
        from simfloat.train.torch_states import check_moments

        check_moments(part, state)
    load = part.load_state_dict if hasattr(part, "load_state_dict") else part.load_state
    load(state)
