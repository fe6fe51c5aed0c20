"""Follow the steps of PyTorch's optimizers: assign tensors to parameters, and round the last addition of an update."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from inspect import Parameter, signature
from threading import get_ident
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from simfloat.arithmetic import Observer
from simfloat.arithmetic.target import notify, wants
from simfloat.kernels.rounding.events import TOTAL, UNCHANGED, wants_optional_counts
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.moments import round_with_scale
from simfloat.simulation.place import Place
from simfloat.simulation.streams import Streams
from simfloat.simulation.updates import COMPENSATION, count_stalled
from simfloat.torch.open_run import active_run, is_going_on
from simfloat.torch.tensors import FORMAT_OF, Tag, numbers_of, put_own_tag, put_tag, tag_of, tensor_of, weight_path

#: Counters of optimizers, which are tensors, but belong to no parameter and are exact. A step counter is a float32
#: tensor: in BF16 it would stop at 256. NAdam's mu_product is also float32.
COUNTERS = ("step", "mu_product", "mu", "eta")


#: The moment that an optimizer creates as a copy of a gradient; others are created as zeros.
COPIED_MOMENTS: dict[type[torch.optim.Optimizer], str] = {torch.optim.SGD: "momentum_buffer"}

#: A running maximum: it is not the result of a rounding, so elements that stay unchanged are not lost updates.
RUNNING_MAXIMUM = "max_exp_avg_sq"

#: The random streams of the last update of a parameter, and the state of its memory after it.
_LAST_UPDATES: MutableMapping[torch.Tensor, tuple[Streams, tuple[int, int]]] = WeakIdKeyDictionary()


def check_calls_no_closure(optimizer: torch.optim.Optimizer, caller: str) -> None:
    """Raise ValueError if the steps of an optimizer evaluate the loss themselves, as LBFGS does."""
    closure = signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is Parameter.empty:
        name = type(optimizer).__name__
        raise ValueError(f"{name} calls a closure, which {caller} does not have; use another optimizer.")


def _state_of(parameter: torch.Tensor) -> tuple[int, int]:
    """Return a pair that changes if something writes to a parameter, or gives it other memory."""
    return parameter._version, parameter.data_ptr()


def _moments_of(parameter: torch.Tensor, optimizer: torch.optim.Optimizer) -> Iterable[tuple[str, Any]]:
    """Return the state of a parameter by name."""
    # A lookup calls the hash of the parameter, a Python function. The state of plain SGD is empty.
    return optimizer.state.get(parameter, {}).items() if optimizer.state else ()


class MomentEvents(Observer):
    """The events of the last rounding of each element of a moment, collected until the step ends."""

    def __init__(self, observer: Observer, before: NDArray | None, size: int) -> None:
        self._observer, self._before, self._size = observer, before, size
        self._events: NDArray[np.int64] | None = None
        self.more = wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Replace the events by the events of a new rounding, or add them if they belong to further elements."""
        if self._events is None or self._events[TOTAL] >= self._size:
            self._events = events
        else:
            self._events += events

    def release(self, after: NDArray, gradient: NDArray | None) -> None:
        """Pass the events to the observer, with the number of elements that the step left unchanged."""
        if self._events is not None:
            self._events[UNCHANGED] = count_stalled(self._before, after, gradient)
            notify(self._observer, self._events, "moment")


class OptimizerSteps:
    """The state of a run that belongs to the optimizer that steps."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._thread = 0
        self._hooks: list[Any] = []
        self._fused: list[dict[str, Any]] = []  # groups with fused=True, which is switched off during the step
        self.step: tuple[FrameType, torch.optim.Optimizer] | None = None  # the frame of the step, and the optimizer
        self._parameters: Mapping[str, torch.nn.Parameter] = {}
        self._follow: Callable[[], None] = lambda: None
        self._before: dict[str, NDArray] = {}  # the values of moments before the step, by path
        self._versions: dict[str, tuple[torch.Tensor, int]] = {}  # of moments before the step, by path
        self._moments: dict[str, MomentEvents] = {}  # the events of moments in the step, by path

    def begin(self, parameters: Mapping[str, torch.nn.Parameter], follow: Callable[[], None]) -> None:
        """Register hooks for the optimizers of this thread; `parameters` are the parameters of the model, by path.

        `follow` is called before each step, and updates the paths if parts of the model have moved.
        """
        self._thread, self._parameters, self._follow = get_ident(), parameters, follow
        self._hooks = [
            # These hooks are called for all optimizers of the process, in every thread.
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def end(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._end_step()

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer that steps; None if none does."""
        if self.step is None:
            return None
        call, optimizer = self.step
        if is_going_on(call):
            return optimizer
        self._end_step()
        return None

    def _end_step(self) -> None:
        self.step = None
        self._before, self._versions, self._moments = {}, {}, {}
        while self._fused:
            self._fused.pop()["fused"] = True

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if get_ident() != self._thread or active_run() is None:
            return
        self._end_step()  # the previous step may have ended in an error
        self._follow()
        has_updates = bool(_LAST_UPDATES)
        for group in optimizer.param_groups:
            for name in ("capturable", "differentiable"):
                if group.get(name):
                    raise ValueError(
                        f"{type(optimizer).__name__}({name}=True) computes inside a graph, which cannot be simulated; "
                        f"leave {name} out."
                    )
            if group.get("fused"):
                # A fused step is one operation on lists, without single roundings. `_end_step` restores the option, so
                # that a checkpoint of the optimizer contains the choice of the program.
                group["fused"] = False  # the same formula, as single operations
                self._fused.append(group)
            for parameter in group["params"]:
                self._know(parameter, optimizer)
                # If two blocks with the same seed update a parameter one after the other, they use the same random
                # bits. The state of the memory shows if anything else wrote to it in between.
                streams, state = (_LAST_UPDATES.get(parameter) if has_updates else None) or (None, None)
                self._simulation.repeated_draws.update(streams if state == _state_of(parameter) else None)
        # This is the frame of torch's `profile_hook_step` wrapper, which exists until the step has ended, also by an
        # error: then PyTorch calls no hook.
        self.step = sys._getframe(1), optimizer

    def _know(self, parameter: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Tag the parameter's gradient and moments with its path."""
        path = weight_path(parameter) or next((name for name, x in self._parameters.items() if x is parameter), None)
        if path is None:
            raise ValueError(
                f"{type(optimizer).__name__} updates a parameter of shape {tuple(parameter.shape)} that the simulated "
                "model does not have, or did not have when the block began; simulate a torch.nn.ModuleList of all "
                "modules that are trained. For tensors outside of modules, add them to it as a torch.nn.ParameterList."
            )
        gradient = parameter.grad
        if gradient is not None and not ((tag := tag_of(gradient)).is_gradient and tag.owner == path):
            put_own_tag(gradient, tag._replace(is_gradient=True, owner=path))
        for name, moment in _moments_of(parameter, optimizer):
            if isinstance(moment, torch.Tensor) and name not in COUNTERS:
                put_tag(moment, tag_of(moment)._replace(is_gradient=False, owner=path, moment=name))
                self._versions[f"{path}.{name}"] = moment, moment._version
                if wants(self._simulation.observer, f"{path}.{name}", "update"):
                    self._before[f"{path}.{name}"] = numbers_of(moment).copy()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if get_ident() != self._thread or active_run() is None:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                path = str(weight_path(parameter))
                if self._simulation.place_at("update", path, ()).draws:
                    _LAST_UPDATES[parameter] = self._simulation.streams, _state_of(parameter)
                for name, moment in _moments_of(parameter, optimizer):
                    is_moment = isinstance(moment, torch.Tensor) and name not in (*COUNTERS, COMPENSATION)
                    # An optimizer skips a parameter without gradient, and then its moments stay as they are.
                    is_written = is_moment and self._is_written(f"{path}.{name}", moment)
                    if is_moment and (parameter.grad is not None or is_written):
                        self._store(path, name, moment, is_written=is_written)
                        self._tell(f"{path}.{name}", moment, parameter.grad)
        self._end_step()

    def _is_written(self, path: str, moment: torch.Tensor) -> bool:
        """True if the step created the moment at a path, or wrote to it."""
        before, version = self._versions.get(path, (None, 0))
        return before is not moment or moment._version != version

    def _tell(self, path: str, moment: torch.Tensor, gradient: torch.Tensor | None) -> None:
        """Pass the events of the moment at a path to the observer."""
        events = self._moments.get(path)
        if events is not None:
            if gradient is not None and gradient.layout is not torch.strided:
                gradient = None
            events.release(numbers_of(moment), None if gradient is None else numbers_of(gradient))

    def to_moment(self, place: Place, name: str, size: int) -> Arithmetic:
        """Return the arithmetic for a moment; its observer receives each element of the moment once per step."""
        arithmetic, path = place.to_moment(name), f"{place.path}.{name}"
        observer = arithmetic.target.observer
        if observer is None:
            return arithmetic
        if name == RUNNING_MAXIMUM:
            return arithmetic.with_observer(None)
        if path not in self._moments:
            before = self._before.get(path)
            self._moments[path] = MomentEvents(observer, before, size if before is None else before.size)
        return arithmetic.with_observer(self._moments[path])

    def _store(
        self, path: str, name: str, moment: torch.Tensor, *, is_first: bool = False, is_written: bool = True
    ) -> None:
        """Round a moment to `optimizer_state`, unless it has this format; always round its first value."""
        own_format = FORMAT_OF[moment.dtype]
        place = self._simulation.place("update", path).in_type(own_format)
        arithmetic = self.to_moment(place, name, moment.numel())
        if place.moment_cast.scale is not None:
            if is_written:
                scaled = round_with_scale(arithmetic, place.moment_cast, numbers_of(moment))
                moment.copy_(tensor_of(scaled, moment.dtype))
                put_tag(moment, Tag(own_format, owner=path, moment=name))
            return
        # If the last operation of an optimizer on a moment was an addition, it was rounded to this format. Other
        # operations leave the moment in `weights`, the format of all intermediate results of an optimizer.
        if is_first or tag_of(moment).format != arithmetic.format:
            moment.copy_(tensor_of(arithmetic.round(numbers_of(moment)), moment.dtype))
        put_tag(moment, Tag(arithmetic.format, owner=path, moment=name))

    def moment_of(self, tensor: torch.Tensor, tag: Tag) -> Tag:
        """Return the tag, with the name of the moment if an optimizer's tensor has become one in this step."""
        if self.optimizer is None or tag.is_weight or tag.moment or tag.owner is None:
            return tag
        # An optimizer may write to views of a moment, or have created it in this step: then only the memory identifies
        # it.
        memory = tensor.untyped_storage().data_ptr()
        for name, moment in self.optimizer.state.get(self._parameters[tag.owner], {}).items():
            is_tensor = isinstance(moment, torch.Tensor) and name not in COUNTERS
            if is_tensor and moment.untyped_storage().data_ptr() == memory:
                tag = tag._replace(moment=name)
                put_tag(tensor, tag)
                return tag
        return tag

    def round_first_moment(self, copy: torch.Tensor) -> torch.Tensor:
        """Return an optimizer's copy of a tensor, rounded to `optimizer_state` if it is the first value of a moment."""
        name, path = COPIED_MOMENTS.get(type(self.optimizer)), tag_of(copy).owner  # type: ignore[arg-type]
        if name is not None and path is not None:
            # Moments with scales are stored after the step.
            if self._simulation.place("update", path).moment_cast.scale is None:
                self._store(path, name, copy, is_first=True)
        return copy

    def last_addition(self, place: Place, w: NDArray, u: NDArray) -> NDArray:
        """Return w + u as the `update` of the policy prescribes."""
        last = place.to_parameter
        if place.recipe.update != "kahan":
            return last.apply("update", w, u)
        if self.optimizer is None:
            raise ValueError(
                f"The update of {place.path!r} is 'kahan', which stores the lost part in the state of an optimizer; "
                "update it by a torch.optim.Optimizer."
            )
        # Kahan 1965, as algorithm 1 of arXiv 2010.06192.
        state, inner = self.optimizer.state[self._parameters[place.path]], place.to_update
        if COMPENSATION in state:
            u = inner.subtract(u, numbers_of(state[COMPENSATION]))
        s = last.apply("update", w, u)
        # It is stored negated, as in `simfloat.optim`, so that checkpoints of both front ends have the same meaning.
        lost = inner.subtract(inner.subtract(s, w), u)
        state[COMPENSATION] = tensor_of(lost, self._parameters[place.path].dtype)
        return s
