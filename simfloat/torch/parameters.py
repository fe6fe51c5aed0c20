"""Store the parameters of a model: their paths, and the format in which they are used and updated."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from simfloat.arithmetic.operands import same_bits
from simfloat.arithmetic.operations import round_array
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.formats import FP32, FP64, Format, nearest_even
from simfloat.policy import Policy
from simfloat.policy.policy import policy_in_type
from simfloat.policy.roles import UPDATE, Recipe
from simfloat.simulation import Simulation
from simfloat.simulation.place import Place
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.tensors import (
    FORMAT_OF,
    NARROW,
    STORED,
    Tag,
    array_on,
    check_device,
    extent_of,
    forget_tag,
    is_view,
    memory_of,
    numbers_of,
    put_own_tag,
    put_tag,
    read_by,
    replace_tensors,
    tag_of,
    tensor_of,
    tensors_in,
    view_like,
    weight_path,
)

Options = dict[str, Any]


class StoredParameters:
    """The parameters of a run's model, by path. A parameter that occurs twice has the path that is listed first.

    A parameter is rounded to `weights` when it is used. If its stored values are not in that format, operations read a
    rounded copy. Only an optimizer's step and the program itself write the stored values.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.by_path: dict[str, torch.nn.Parameter] = {}
        self._paths: dict[int, str] = {}  # by identity
        self._modules: set[int] = set()  # of the model, by identity
        self.is_outdated = False  # True after a change of the policy
        self.copies: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # the stored tensor, and its rounded copy
        self._memories: set[int] = set()  # that stored tensors with copies had

    def begin(self, model: torch.nn.Module) -> None:
        """Tag the memory of every parameter with its path."""
        self._modules = set(map(id, model.modules()))
        for path, parameter in model.named_parameters():
            if is_lazy(parameter):
                raise ValueError(
                    f"The parameter {path!r} has no shape yet; call the model once on a sample before it is simulated."
                )
            self.by_path[path], self._paths[id(parameter)] = parameter, path
            self._simulation.note_path(path)
        self._know_all()

    @property
    def storage(self) -> Format:
        """The widest format that all tensors of the model can represent: FP64 for float64, otherwise FP32."""
        types = {x.dtype for x in self.by_path.values()} or {torch.get_default_dtype()}
        return FP64 if types == {torch.float64} else FP32

    def follow(self, model: torch.nn.Module) -> None:
        """Update the paths of the parameters.

        A parameter that left the model keeps its path, and is forgotten if another one has this path now.
        """
        now = {id(parameter): path for path, parameter in model.named_parameters()}
        new_paths, before = set(now.values()), list(self.by_path.items())
        if all(now.get(id(parameter), path) == path for path, parameter in before):
            return
        with without_dispatch():
            self.by_path.clear()
            self._paths.clear()
            self.copies.clear()
            self._memories.clear()
            for path, parameter in before:
                new = now.get(id(parameter), None if path in new_paths else path)
                if new is None:
                    forget_tag(parameter)
                else:
                    self.by_path[new], self._paths[id(parameter)] = parameter, new
                    self._simulation.note_path(new)
            self._know_all()

    def renew(self) -> None:
        """Mark the parameters for rounding under the current policy, at their next use in a forward pass."""
        self.is_outdated = True

    def _know_all(self) -> None:
        self._check_overlaps()
        for path, parameter in self.by_path.items():
            self._know(path, parameter.detach())
        self.is_outdated = False

    def end(self) -> None:
        """Remove the tags."""
        for parameter in self.by_path.values():
            forget_tag(parameter)
        self.by_path.clear()
        self._paths.clear()
        self.copies.clear()
        self._memories.clear()

    def check_known(self, path: str, module: torch.nn.Module) -> None:
        """Raise ValueError if a module of the model, or a part of it, got a new parameter after the block began."""
        parameters = list(module._parameters.items())
        for name, part in module._modules.items():
            if part is not None and id(part) not in self._modules:
                parameters += [(f"{name}.{inner}", x) for inner, x in part.named_parameters()]
        for name, parameter in parameters:
            if id(parameter) not in self._paths and isinstance(parameter, torch.nn.Parameter):
                raise ValueError(
                    f"The parameter {name!r} of {path or type(module).__name__!r} came after the block began, and "
                    "would be used unrounded; assign it before. load_state_dict without assign=True writes to the "
                    "existing parameters."
                )

    def arguments_as_read(
        self, function: Any, arguments: tuple[Any, ...], options: Options
    ) -> tuple[tuple[Any, ...], Options]:
        """Return the arguments as an operation reads them; views are taken of the stored values."""
        # A backward pass skips this: it continues with the parameters that its forward pass read.
        if self.is_outdated and torch._C._current_autograd_node() is None:
            if any(weight_path(x) is not None for x in tensors_in((arguments, options))):
                self._know_all()
        for x in arguments:
            for each in x if type(x) is list else (x,):
                # The Parameter object is registered, but its memory has no tag: the program assigned `p.data = ...`.
                # Nothing else reports this.
                if id(each) in self._paths and weight_path(each) is None:
                    self._check_overlaps()
                    self.conform(self._paths[id(each)], each)  # it has other memory, as after `.data = ...`
        # A view of a parameter stays a view of the stored values: the program may write through it. Operations that
        # read it later receive the rounded values then.
        if not self.copies or is_view(function) or not (options or self._may_be_copied(arguments)):
            return arguments, options
        if options:
            options = {name: x if name == "out" else replace_tensors(x, self.read) for name, x in options.items()}
        return read_by(function, arguments, self.read), options

    def _may_be_copied(self, arguments: tuple[Any, ...]) -> bool:
        """False if no argument is in the memory of a parameter that has a rounded copy."""
        for x in arguments:
            if isinstance(x, torch.Tensor):
                if x.untyped_storage()._cdata in self._memories:
                    return True
            elif type(x) in (list, tuple, dict):
                return True
        return False

    def read(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tensor that an operation reads: for a parameter its rounded copy, if there is one."""
        if not self.copies or x.untyped_storage()._cdata not in self._memories:
            return x
        tag = tag_of(x)
        stored_and_copy = self.copies.get(str(tag.owner)) if tag.is_weight else None
        # for example a view of an earlier rounded copy
        if stored_and_copy is None or stored_and_copy[0].untyped_storage()._cdata != x.untyped_storage()._cdata:
            return x
        copy = view_like(x, *stored_and_copy)
        # Autograd's attributes of the copy (requires_grad, grad_fn) are read from the tensor that it replaces.
        setattr(copy, STORED, x)
        return copy

    def arrays(self, arguments: Iterable[Any]) -> list[Any]:
        """Return arguments with their tensors as arrays, as operations read them; integers stay integers."""
        arrays, copies = [], self.copies
        for x in arguments:
            if isinstance(x, torch.Tensor):
                x = self.read(x) if copies else x
                x = numbers_of(x) if x.is_floating_point() else array_on(x)
            arrays.append(x)
        return arrays

    def conform(self, path: str, tensor: torch.Tensor) -> None:
        """Round the values that were written to a parameter, or to a part of it, to `weights`."""
        rounded = _rounded_to_weights(path, tensor, self.update_place(path).recipe)
        if rounded is not None:
            with torch.no_grad():
                # detach shares the memory and counts the write, so that a backward pass that saved the parameter
                # notices it.
                tensor.detach().copy_(rounded)
        self._know(path, self.by_path[path].detach())

    def stand_in(self, path: str, x: torch.Tensor) -> None:
        """Use a tensor of the program as the parameter at a path, rounded to `weights`."""
        rounded = _rounded_to_weights(path, x.detach(), self.update_place(path).recipe)
        if rounded is not None:
            with without_dispatch():
                x.data.copy_(rounded)
        put_tag(x, Tag(self.update_place(path).recipe.weights, owner=path, is_weight=True))

    def note_written(self, path: str) -> None:
        """Note that values in the format `weights` were written to a parameter, or to a part of it."""
        if self.copies:
            self._know(path, self.by_path[path].detach())

    def _know(self, path: str, tensor: torch.Tensor) -> None:
        """Tag the memory of a parameter, and create its rounded copy if the stored values are not in `weights`."""
        recipe = self.update_place(path).recipe
        rounded = _rounded_to_weights(path, tensor, recipe)
        tag = Tag(recipe.weights, owner=path, is_weight=True)
        put_own_tag(tensor, tag)
        if rounded is None:
            self.copies.pop(path, None)
        else:
            # It has the strides of the parameter, so that every view of it is the same view of the copy.
            copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(rounded)
            put_tag(copy, tag)
            self.copies[path] = tensor, copy
            self._memories.add(memory_of(tensor))

    def update_place(self, path: str) -> Place:
        """Return the place of a parameter's update, in its own dtype if the policy is written for such dtypes."""
        place, parameter = self._simulation.place("update", path), self.by_path.get(path)
        return place if parameter is None else place.in_type(FORMAT_OF[parameter.dtype])

    def check(self, policy: Policy) -> None:
        """Raise ValueError if the dtype of a parameter cannot represent its `weights` under a policy."""
        for path, parameter in self.by_path.items():
            recipe = policy.recipe(path, UPDATE)
            recipe_in_type = (
                policy_in_type(policy, FORMAT_OF[parameter.dtype]).recipe(path, UPDATE) if recipe.written else recipe
            )
            _check_type(path, parameter, recipe_in_type)

    def _check_overlaps(self) -> None:
        """Raise ValueError if two parameters share a part of their memory, but not all of it."""
        # Tied weights are one memory and one parameter. Overlapping parts would belong to two owners.
        extents = sorted((memory_of(x), extent_of(x), path) for path, x in self.by_path.items() if x.numel())
        for (memory, (begin, end), path), (next_memory, (start, stop), later) in pairwise(extents):
            if memory == next_memory and start < end and (begin, end) != (start, stop):
                raise ValueError(
                    f"The parameters {path!r} and {later!r} share a part of their memory, so it is unknown which of "
                    "them a value belongs to; separate them by p.data = p.data.clone()."
                )


def _rounded_to_weights(path: str, tensor: torch.Tensor, recipe: Recipe) -> torch.Tensor | None:
    """Return the values of a parameter rounded to `weights`; None if they are in this format.

    Raises ValueError if their dtype cannot represent it.
    """
    format = recipe.weights
    _check_type(path, tensor, recipe)
    array = numbers_of(tensor)
    rounded = round_array(array, Target(format, nearest_even, carrier_of(format)))
    # Bits are compared, not values: a stored weight of -0 must not be read as +0.
    same = same_bits(rounded.astype(array.dtype, copy=False), array)
    return None if same else tensor_of(rounded, tensor.dtype)


def _check_type(path: str, tensor: torch.Tensor, recipe: Recipe) -> None:
    """Raise ValueError unless the dtype of a parameter can represent the numbers of its `weights`."""
    format = recipe.weights
    is_narrow = tensor.dtype in NARROW and not recipe.written
    check_device(f"The parameter {path!r}", tensor)
    if tensor.is_complex() or is_narrow:
        raise ValueError(
            f"The parameter {path!r} is {tensor.dtype}; a model must be in float32 or float64, which also store "
            "narrow formats: use model.float(), or the policy 'as-written'."
        )
    if not format.fits_float32 and tensor.dtype != torch.float64:
        raise ValueError(
            f"The parameter {path!r} is stored in {format}, its role weights, which {tensor.dtype} cannot represent; "
            "convert the model and its data to float64, by model.double()."
        )
