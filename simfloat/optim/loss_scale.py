"""Loss scaling: the base class of all scalers, the static scale, and the dynamic scale.

The dynamic scale grows until gradients overflow, and then decreases.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from inspect import signature
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.parameter import begin_update
from simfloat.autodiff.variable import Variable
from simfloat.common import check_count
from simfloat.environment import InUsualEnvironment
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.options import number, number_that, optional
from simfloat.options import KW_ONLY, Declaration, Reader, option, read_options, stored_options, with_options

#: The smallest scale: its reciprocal is still a number of FP32.
SMALLEST = 2.0**-126

#: Tensors, or lists and tuples of them.
Losses = TypeVar("Losses")


class Stage(Enum):
    """The last call for an optimizer since the last `update`."""

    UNSCALED = "unscale_"
    STEPPED = "step"


class GradientCheck(NamedTuple):
    """The result of checking the gradients of an optimizer."""

    stage: Stage
    is_finite: bool  # True if all elements are finite
    largest: float  # the largest absolute value, unscaled


class LossScale(InUsualEnvironment):
    """The base class of loss scalers: a factor S that is multiplied by the loss, so that gradients do not underflow.

    A step is ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``. Call ``unscale_(optimizer)``
    before the step if you clip or read gradients. S is a float32 number, at least 2^-126 and finite. If a gradient is
    not finite, before or after unscaling, the step is skipped. Several optimizers may share one scaler: step each of
    them, then call `update` once. Each kind of scaler defines how `update` changes S. The interface is that of
    torch.amp.GradScaler.

    Parameters:
        scale: the initial S.

    Raises:
        ValueError: if `scale`, rounded to float32, is not a finite number of at least 2^-126.
    """

    #: Entries of `state_dict` in addition to the scale -> True if a loaded state may omit the entry.
    state_names: Mapping[str, bool] = {}

    def __init__(self, scale: float) -> None:
        self._scale = self.init_scale = as_scale("scale", scale)
        self._looked: dict[int, tuple[Optimizer, GradientCheck]] = {}

    def get_scale(self) -> float:
        """Return S."""
        return self._scale

    def scale(self, loss: Losses) -> Losses:
        """Return the loss times S, or a list or tuple of losses times S; in FP32, or in a wider format of the loss.

        The gradient of the loss is exactly S under every policy.
        """
        if isinstance(loss, list | tuple):
            each = map(self.scale, loss)
            return type(loss)(*each) if hasattr(loss, "_fields") else type(loss)(each)  # a named tuple takes fields
        if not isinstance(loss, Tensor):
            raise ValueError(f"scale takes the loss, a Tensor or a list of them, got a {type(loss).__name__}.")
        return loss.scaled(self._scale)  # type: ignore[return-value]

    def scale_of(self, parameter: Variable) -> float:
        """Return the factor that the gradient of a parameter contains before it is unscaled."""
        return self._scale

    def unscale_(self, optimizer: Optimizer) -> None:
        """Remove S from the gradients: g becomes g * (1/S), rounded to the parameter's `weights`.

        1/S is first rounded to FP32, as in torch, unless the parameter is stored in a format with a higher precision.
        Infinities and NaN are unchanged. Call it at most once per step for each optimizer, before the step and inside a
        `simulate` block.

        Raises:
            ValueError: if it was called, or the optimizer was stepped, since the last `update`.
        """
        if (before := self._check_of(optimizer)) is not None:
            raise ValueError(
                f"{before.stage.value} was already called for this optimizer since the last update(); call unscale_ "
                "once, before the step."
            )
        unscaled = [(p, self._unscale(p, p.grad)) for p in optimizer.params if p.grad is not None]
        for parameter, gradient in unscaled:
            parameter.grad = gradient
        if unscaled:
            is_finite = all(np.isfinite(g).all() for _, g in unscaled)
            largest = max(float(np.abs(g).max()) if g.size else 0.0 for _, g in unscaled)
            self._looked[id(optimizer)] = optimizer, GradientCheck(Stage.UNSCALED, is_finite, largest)

    def step(self, optimizer: Optimizer) -> None:
        """Step the optimizer unless a gradient is not finite; gradients that are still scaled are unscaled first.

        Raises:
            ValueError: if the optimizer was stepped since the last `update`; if no parameter has a gradient.
        """
        if (looked := self._check_of(optimizer)) is None:
            self.unscale_(optimizer)
            looked = self._check_of(optimizer)
        elif looked.stage is Stage.STEPPED:
            raise ValueError("step was already called for this optimizer since the last update(); call update() first.")
        if looked is None:
            raise ValueError("step needs gradients; no parameter of the optimizer has one. Call backward first.")
        if looked.is_finite:
            try:
                optimizer.step()
            except KeyboardInterrupt:
                del self._looked[id(optimizer)]  # the gradients are scaled again if the loop is restarted
                raise
        self._looked[id(optimizer)] = optimizer, looked._replace(stage=Stage.STEPPED)

    def update(self, new_scale: float | None = None) -> None:
        """Choose the next S from the gradients since the last update, or set it to `new_scale`.

        Raises:
            ValueError: if no optimizer was stepped or unscaled since the last update.
        """
        if new_scale is not None:
            self._scale = as_scale("new_scale", new_scale)
        elif not self._looked:
            raise ValueError("update needs a step(optimizer) or unscale_(optimizer) since the last update(); got none.")
        else:
            seen = [looked for _, looked in self._looked.values()]
            self.adapt(all(looked.is_finite for looked in seen), max(looked.largest for looked in seen))
        self._looked = {}

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Change S after a step. `is_finite`: all gradients were finite; `largest`: their unscaled maximum."""

    def is_skipping(self, optimizer: Optimizer) -> bool:
        """True if a gradient of this optimizer was found to be infinite or NaN since the last `update`."""
        looked = self._check_of(optimizer)
        return looked is not None and not looked.is_finite

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, the options and the counters as JSON types; call it after `update`."""
        return {"scale": self._scale, **{name: getattr(self, name) for name in self.state_names}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `state_dict`; if a part does not fit, nothing changes."""
        kind = type(self).__name__
        if not isinstance(state, Mapping):
            raise ValueError(f"load_state_dict takes a result of {kind}.state_dict, got a {type(state).__name__}.")
        needed = ["scale", *(name for name, is_optional in self.state_names.items() if not is_optional)]
        missing = [name for name in needed if name not in state]
        unknown = [name for name in state if name != "scale" and name not in self.state_names]
        if missing or unknown:
            raise ValueError(f"The state is not {kind}'s: missing {missing}, unknown {unknown}.")
        vars(self).update(vars(self.with_state({**self.state_dict(), **state})), init_scale=self.init_scale)

    def with_state(self, state: Mapping[str, Any]) -> Self:
        """Return a scaler in this complete state; raise ValueError if a value is invalid."""
        return type(self)(state["scale"])

    def options(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name: the initial scale and the options."""
        parameters = signature(type(self)).parameters
        return {"init_scale": self.init_scale} | {n: getattr(self, n) for n in self.state_names if n in parameters}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for copies and pickles, without object identities, which would be wrong there."""
        return {**vars(self), "_looked": list(self._looked.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _looked={id(entry[0]): entry for entry in state["_looked"]})

    def _check_of(self, optimizer: Optimizer) -> GradientCheck | None:
        if not isinstance(optimizer, Optimizer):
            raise ValueError(f"A loss scale takes an optimizer of simfloat.optim, got a {type(optimizer).__name__}.")
        return self._looked.get(id(optimizer), (None, None))[1]

    def _unscale(self, parameter: Parameter, g: NDArray) -> NDArray:
        """Return a gradient without its scale; infinities and NaN are unchanged, even in formats that have none."""
        place = begin_update(parameter)
        exact = 1 / self.scale_of(parameter)
        inverse = np.array(exact if place.recipe.weights.precision > 24 else np.float32(exact))
        finite = np.isfinite(g)
        if finite.all():
            return place.to_unscaled.multiply(g, inverse)
        return np.where(finite, place.to_unscaled.multiply(np.where(finite, g, g.dtype.type(0)), inverse), g)

    def __repr__(self) -> str:
        """Return the call that creates the scaler, with its present scale and the options that are not defaults."""
        parameters = signature(type(self)).parameters
        shown = [] if next(iter(parameters)) in self.state_names else [repr(self._scale)]
        for name in self.state_names:
            if name in parameters and getattr(self, name) != parameters[name].default:
                shown.append(f"{name}={getattr(self, name)!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class StaticLossScale(LossScale):
    """A loss scale that never changes.

    Choose S so that S * max|g| remains below the overflow threshold.

    Parameters:
        scale: the factor S.

    Raises:
        ValueError: if `scale`, rounded to float32, is not a finite number of at least 2^-126.

    Source: Micikevicius et al. 2018, section 3.2.

    Examples:
        >>> model, scaler = sf.nn.Linear(2, 1, rng=0), sf.optim.StaticLossScale(1024.0)
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> with sf.simulate("fp16-master"):
        ...     scaler.scale(sf.nn.mse_loss(model(np.ones((4, 2))), np.ones((4, 1)))).backward()
        ...     step = scaler.step(optimizer)
        ...     scaler.update()
        >>> scaler.get_scale()
        1024.0
    """


def as_scale(name: str, value: Any) -> float:
    """Return a scale, rounded to float32; raise ValueError if it cannot be a scale."""
    number(name, value)
    with np.errstate(over="ignore"):
        scale = float(np.float32(value))
    if not SMALLEST <= scale < np.inf:
        raise ValueError(f"{name} must be a positive number of float32, at least 2**-126, got {value!r}.")
    return scale


def count(name: str, value: Any, least: int = 1) -> int:
    """Return an integer of at least `least`."""
    check_count(name, value, least)
    return int(value)


count_from_zero = partial(count, least=0)


class DeclaredLossScale(LossScale):
    """The common base of loss scales that declare their options; `init_scale` is 1 unless it is one of them."""

    #: Names of the counts and averages that belong to the state -> the reader of each.
    counters: Mapping[str, Reader[Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = [name for name, value in vars(cls).items() if isinstance(value, Declaration) and name != "init_scale"]
        if "state_names" not in vars(cls):
            cls.state_names = {**cls.state_names, **dict.fromkeys((*names, *cls.counters), False)}

    def __init__(self, **arguments: Any) -> None:
        options = read_options(type(self), arguments)
        super().__init__(options.get("init_scale", 1.0))
        vars(self).update(options)
        self._start(**arguments)

    def with_state(self, state: Mapping[str, Any]) -> Self:
        """Return a scaler with these entries; raise ValueError if one is invalid."""
        # A subclass may store more than its options: each entry that is no count is an argument of its constructor.
        arguments = {name: value for name, value in state.items() if name not in ("scale", *self.counters)}
        fresh = type(self)(*([state["scale"]] if "init_scale" in stored_options(type(self)) else []), **arguments)
        for name, read in self.counters.items():
            setattr(fresh, name, read(name, state[name]))
        fresh._scale = as_scale("scale", state["scale"])
        return fresh

    def _start(self, **arguments: Any) -> None:
        """Check the options together, and store the initial counts and averages."""


@with_options
class DynamicLossScale(DeclaredLossScale):
    """S * growth_factor after growth_interval finite steps in a row, and S * backoff_factor after an overflow.

    The rule and its defaults are those of torch.amp.GradScaler; S never grows to infinity. The settings of Apex and
    Megatron-LM are `DynamicLossScale.apex()` and `DynamicLossScale.megatron()`.

    Parameters:
        init_scale: the initial S.
        growth_factor: a number above 1.
        backoff_factor: a number between 0 and 1.
        growth_interval: the number of consecutive finite steps before S grows, at least 1.
        min_scale, max_scale: bounds of S; None for no bound.
        hysteresis: with h, the first h - 1 overflow steps since the last finite step only reset the growth count; later
            ones lower S (Megatron-LM).

    Raises:
        ValueError: if an option is outside its range; unless min_scale <= init_scale <= max_scale.

    Examples:
        >>> model, scaler = sf.nn.Linear(2, 1, rng=0), sf.optim.DynamicLossScale(init_scale=2.0**20)
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> with sf.simulate("fp16-master"):
        ...     scaler.scale(sf.nn.mse_loss(model(np.ones((4, 2))), np.ones((4, 1)))).backward()
        ...     step = scaler.step(optimizer)
        ...     scaler.update()
        >>> scaler.get_scale()
        524288.0
    """

    state_names = {
        **dict.fromkeys(("growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"), False),
        **dict.fromkeys(("min_scale", "max_scale", "hysteresis", "_hysteresis_tracker"), True),
    }

    counters = {"_growth_tracker": count_from_zero, "_hysteresis_tracker": count_from_zero}

    init_scale: float = option(as_scale, default=2.0**16)
    growth_factor: float = option(number_that(lambda x: x > 1, "be greater than 1"), default=2.0)
    backoff_factor: float = option(number_that(lambda x: 0 < x < 1, "lie between 0 and 1"), default=0.5)
    growth_interval: int = option(count, default=2000)
    _: KW_ONLY
    min_scale: float | None = option(optional(as_scale), default=None)
    max_scale: float | None = option(optional(as_scale), default=None)
    hysteresis: int = option(count, default=1)

    def _start(self, **arguments: Any) -> None:
        if not (self.min_scale or 0) <= self._scale <= (self.max_scale or np.inf):
            raise ValueError(f"init_scale must lie between min_scale and max_scale, got {arguments['init_scale']!r}.")
        self._growth_tracker, self._hysteresis_tracker = 0, self.hysteresis

    @classmethod
    def apex(cls) -> Self:
        """Return a scaler with the rule of NVIDIA Apex: that of torch, with S at most 2^24."""
        return cls(max_scale=2.0**24)

    @classmethod
    def megatron(cls) -> Self:
        """Return a scaler with the defaults of Megatron-LM: 2^32 at first, at least 1, growth after 1000 steps,
        hysteresis 2.
        """
        return cls(2.0**32, growth_interval=1000, min_scale=1.0, hysteresis=2)

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Change S after a step; `is_finite` is True if all gradients were finite."""
        if not is_finite:
            self._growth_tracker = 0
            self._hysteresis_tracker = max(self._hysteresis_tracker - 1, 0)
            if not self._hysteresis_tracker:
                self._scale = max(_float32(self._scale * self.backoff_factor), self.min_scale or SMALLEST)
            return
        self._growth_tracker += 1
        self._hysteresis_tracker = self.hysteresis
        if self._growth_tracker >= self.growth_interval:
            grown = min(_float32(self._scale * self.growth_factor), self.max_scale or np.inf)
            self._scale = grown if np.isfinite(grown) else self._scale
            self._growth_tracker = 0


def _float32(x: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(x))
