"""The place of an operation, and its arithmetic under the policy.

`UpdateRules` define the rounding of the update of a parameter. `widest_format` returns the widest of several formats;
an operation that is on no list of casts computes in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from numpy.typing import NDArray

from simfloat.arithmetic import GivenBits, Observer
from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.arithmetic.catalog import kind_of
from simfloat.arithmetic.operations import round_array
from simfloat.arithmetic.scaling import Delayed, Hadamard
from simfloat.arithmetic.target import Target, WithPath, carrier_of, wants
from simfloat.formats import CATALOG, FP32, FP64, Format, Rounding, nearest_even, stochastic
from simfloat.kernels.rounding.events import wants_optional_counts
from simfloat.policy import Policy, Recipe
from simfloat.policy.overrides import with_classes
from simfloat.policy.policy import draws_in_operations, keeps_upcasts, policy_in_type
from simfloat.policy.roles import COMPOSITE, CONTRACTION, CUDA, MOVEMENT, WIDEST
from simfloat.simulation.arithmetic import (
    Arithmetic,
    Input,
    MeteredArithmetic,
    Metering,
    Rotation,
    Site,
    WorkMeter,
    refusal_of,
)
from simfloat.simulation.streams import Streams
from simfloat.simulation.switching import Histories


@dataclass(frozen=True, eq=False)
class UpdateRules:
    """The rounding of the operations of an update: one object for all parameters with the same rules."""

    weights: Format
    rounding: Rounding
    optimizer_state: Cast
    last: Rounding  # of the final addition
    is_compensated: bool
    is_observed: bool


_rules = lru_cache(maxsize=1 << 10)(UpdateRules)


def update_rules_of(recipe: Recipe, is_observed: bool) -> UpdateRules:
    """Return the rules of the updates of a recipe."""
    modes = recipe.rounding, cast_of_moments(recipe), mode_of_update(recipe)
    return _rules(recipe.weights, *modes, recipe.update == "kahan", is_observed)


def cast_of_moments(recipe: Recipe) -> Cast:
    """Return the cast of moments when they are stored; a format means the rounding mode of all results."""
    state = recipe.optimizer_state
    return state if isinstance(state, Cast) else Cast(state, recipe.rounding)


def mode_of_update(recipe: Recipe) -> Rounding:
    """Return the rounding mode of the final addition of an optimizer."""
    if isinstance(recipe.update, Rounding):
        return recipe.update
    if recipe.update != "stochastic":
        return nearest_even
    return recipe.rounding if recipe.rounding.is_stochastic else stochastic()


#: Storage formats of results. TF32 is excluded: it is a format of operands, stored as FP32.
STORAGE_FORMATS = sorted(
    (format for format in CATALOG.values() if format.bits in (8, 16, 32, 64)), key=lambda f: f.bits
)


def widest_format(formats: Iterable[Format]) -> Format:
    """Return the format that contains the numbers of all others.

    If none of them does, return the smallest format of the catalog that does: FP32 for FP16 and BF16.
    """
    result: Format | None = None
    for format in formats:
        result = format if result is None else _wider(result, format)
    if result is None:
        raise ValueError("The widest format of no operands is undefined: an operation needs an operand.")
    return result


@cache
def _wider(a: Format, b: Format) -> Format:
    candidates = (a, b, *STORAGE_FORMATS)
    return next((format for format in candidates if contains(format, a) and contains(format, b)), FP64)


def contains(wide: Format, narrow: Format) -> bool:
    """True if every number of `narrow` is a number of `wide`."""
    return (
        wide.precision >= narrow.precision
        and wide.min <= narrow.min
        and wide.max >= narrow.max
        and wide.smallest_subnormal <= narrow.smallest_subnormal
        and (wide.signed or not narrow.signed)
        and (wide.has_infinity or not narrow.has_infinity)
        and (wide.has_nan or not narrow.has_nan)
        and (wide.has_negative_zero or not narrow.has_negative_zero)
    )


class ActivePolicy(NamedTuple):
    """The settings that a simulation shares with all of its places."""

    policy: Policy
    streams: Streams | None  # None if the policy uses no random bits
    observer: Observer | None
    histories: Histories
    takes_formats: bool  # True if gradients may take the format of their operand
    meter: WorkMeter | None = None  # counts the work, if given


class Place:
    """An operation (with the composites around it) in a layer, or the update of a parameter, under a policy.

    Its arithmetics are created once and cached. Random bits come from the streams of its path, phase and operation.
    If a role is ``widest``, the result of the forward pass takes the widest format of the operands, and the gradient
    with respect to an operand takes the format of this operand.
    """

    def __init__(self, in_force: ActivePolicy, path: str, operations: tuple[str, ...]) -> None:
        self.path = path
        self.operations = operations
        self.operation = operations[-1]  # without the composites around it
        self.recipe = _recipe(in_force.policy, path, operations)
        self.is_fused = bool(self.recipe.fused)  # True for a composite that the policy rounds once
        self.is_widest = self.recipe.activations == WIDEST  # True if results take the widest format of the operands
        self.observer = in_force.observer
        self.streams = in_force.streams  # None if the policy uses no random bits
        self.takes_formats = in_force.takes_formats
        self.kind = kind_of(self.operation)
        self.is_contraction = self.kind == CONTRACTION
        self.active_policy = in_force
        self._backward: dict[tuple[int, str | None, Format | None], Arithmetic] = {}
        self._forward: dict[Format, Arithmetic] = {}
        self._moments: dict[str, Arithmetic] = {}
        self.bound_update: Any = None  # the program of the last update
        self.bound_layers: dict[Any, Any] = {}  # what a front end has determined for layers, by their parameters
        self._inputs: dict[tuple[str | None, Format | None], Input] = {}
        self._siblings: dict[tuple[str, str, tuple[str, ...]], Place] = {}
        self.recipes: dict[str, Recipe] = {}  # of parameters, by path
        self.tied: dict[str, str] = {}  # path of a tied parameter -> path under which it is stored
        self.type, self.untyped = FP32, self  # the dtype of the program for this place, and the place without dtype
        self._typed: dict[Format, Place] = {}
        self.narrow: Place | None = None  # the place before the program converted operands to FP32 (see `upcast`)
        self.has_summed = False  # True if a sum outside of contractions ran here, if the front end records it

    @property
    def where(self) -> str:
        """The operation and the layer, for messages."""
        return f"{self.operation} in layer {self.path!r}" if self.path else self.operation

    @cached_property
    def fused_composite(self) -> tuple[str, ...]:
        """The outermost fused composite around the operation, after those around it; empty if there is none."""
        around = (self.operations[:count] for count in range(1, len(self.operations)))
        return next((names for names in around if _recipe(self.active_policy.policy, self.path, names).fused), ())

    @cached_property
    def is_written(self) -> bool:
        """True if the policy follows the dtypes of the program here."""
        return bool(self.recipe.written)

    @cached_property
    def is_for_cuda(self) -> bool:
        """True if it follows the rules of PyTorch for CUDA kernels, not for CPU kernels."""
        return self.recipe.written == CUDA

    def sibling(self, operation: str, path: str, composites: tuple[str, ...]) -> Place:
        """Return the place of another operation under the same policy."""
        place = self._siblings.get((operation, path, composites))
        if place is None:
            place = Place(self.active_policy, path, (*composites, operation))
            place.narrow = self.narrow and self.narrow.sibling(operation, path, composites)
            self._siblings[operation, path, composites] = place
        return place

    def in_type(self, format: Format) -> Place:
        """Return this place for a dtype of the program, which matters if the policy is `written` for dtypes."""
        if format is self.type or not self.is_written or format == self.type:
            return self
        # Typed places are stored at the untyped one, which is the place for FP32. So a dtype has one place, however
        # it is reached, and its arithmetics are created once.
        untyped = self.untyped
        if format == FP32:
            return untyped
        place = untyped._typed.get(format)
        if place is None:
            typed = self.active_policy._replace(policy=policy_in_type(untyped.active_policy.policy, format))
            place = untyped._typed[format] = Place(typed, self.path, self.operations)
            place.type, place.untyped = format, untyped
        return place

    @cached_property
    def upcast(self) -> Place | None:
        """This place for operands that the program has converted to FP32; None if the conversion changes nothing."""
        policy = self.active_policy.policy
        if self.is_contraction or self.is_written or not keeps_upcasts(policy):
            return None
        # Gradients follow `activations`, unless the policy has a format for them.
        gradient_roles = (name for name in ("gradients", "activation_gradients") if getattr(policy, name) is not None)
        roles: dict[str, Any] = dict.fromkeys(("activations", *gradient_roles), FP32)
        wide = replace(policy, **roles, weight_gradients=policy.recipe().weight_gradients)
        place = Place(self.active_policy._replace(policy=wide), self.path, self.operations)
        place.narrow = self
        return place

    @property
    def in_all_types(self) -> tuple[Place, ...]:
        """This place, and the places for other dtypes and for upcasts of the program that were used."""
        upcast = self.__dict__.get("upcast")
        return self, *self._typed.values(), *([] if upcast is None else [upcast])

    @cached_property
    def without_observer(self) -> Place:
        """This place without an observer, for operations that run a second time."""
        place = Place(self.untyped.active_policy._replace(observer=None), self.path, self.operations)
        place.narrow = self.narrow and self.narrow.without_observer
        return place.in_type(self.type)

    @property
    def draws(self) -> bool:
        """True if the policy uses random bits."""
        return self.streams is not None

    @cached_property
    def keeps_histories(self) -> bool:
        """True if operands of this contraction have delayed scales, each with its own history."""
        recipe = self.recipe
        casts = (recipe.compute, recipe.compute_weights, recipe.compute_gradients) if self.is_contraction else ()
        return any(isinstance(as_cast(cast).scale, Delayed) for cast in casts)

    @cached_property
    def is_uniform(self) -> bool:
        """True if all calls here have one arithmetic, in formats of float32.

        This is the case if no random bits, formats of operands, histories or overrides can distinguish calls. An
        override of the whole layer, of other layers or of other operations cannot. The steps of a composite may be any
        operations.
        """
        recipe = self.recipe
        if draws_in_operations(recipe) or self.takes_formats or self.keeps_histories or self.is_written:
            return False
        roles = recipe.activations, recipe.activation_gradients, recipe.weight_gradients
        holds_all = all(isinstance(format, Format) and format.fits_float32 for format in roles)
        names = with_classes((*self.operations, "add", MOVEMENT))  # a layer also adds a bias, and moves its operands
        return holds_all and not any(
            each.may_distinguish(self.path, names if self.kind != COMPOSITE else each.operations)
            for each in self.active_policy.policy.overrides
        )

    @property
    def is_particular(self) -> bool:
        """True if the parameter of an operation matters: overrides may name it, or an observer receives its path."""
        return bool(self.active_policy.policy.overrides) or self.observer is not None

    @cached_property
    def forward(self) -> Arithmetic:
        """The arithmetic of the forward pass, if results have a fixed format."""
        return self._arithmetic("activations", self.recipe, "forward")

    def forward_in(self, format: Format) -> Arithmetic:
        """Return the arithmetic of a forward pass whose results take the format of its operands."""
        if format not in self._forward:
            self._forward[format] = self._arithmetic("activations", self.recipe, "forward", format=format)
        return self._forward[format]

    def to_activation(self, operand: int = 0, format: Format | None = None) -> Arithmetic:
        """Return the arithmetic of the backward pass to an operand; `format` is its format, if gradients take it."""
        if self.narrow is not None and format is not None and not contains(format, FP32):
            return self.narrow.to_activation(operand, format)
        key = (operand, None, format)
        arithmetic = self._backward.get(key)
        if arithmetic is None:
            arithmetic = self._arithmetic("activation_gradients", self.recipe, "backward", operand, format)
            self._backward[key] = arithmetic
        return arithmetic

    def to_weight(self, parameter: str, operand: int = 0, format: Format | None = None) -> Arithmetic:
        """Return the arithmetic of the backward pass to the parameter at this path."""
        key = (operand, parameter, format)
        arithmetic = self._backward.get(key)
        if arithmetic is None:
            recipe = self.recipe_of_parameter(parameter)
            arithmetic = self._backward[key] = self._arithmetic(
                "weight_gradients", recipe, "backward", operand, format, asked_path=self.path_in_layer(parameter)
            )
        return arithmetic

    def to_operand(self, parameter: str | None, operand: int, format: Format | None = None) -> Arithmetic:
        """Return the arithmetic of the backward pass to the parameter at this path, or to an activation."""
        return self.to_activation(operand, format) if parameter is None else self.to_weight(parameter, operand, format)

    def to_stored(self, parameter: str | None, operand: int, own_format: Format) -> Arithmetic:
        """Return the arithmetic that adds a gradient to the one of an earlier backward pass, of a parameter or of
        data.

        If results take the formats of operands, as under automatic mixed precision, the sum has the format of the
        parameter or data, `own_format`. Only the contributions within one pass are added in the narrower format of a
        product.
        """
        arithmetic = self.to_operand(parameter, operand, own_format)
        if not self.takes_formats or not contains(own_format, arithmetic.format):
            return arithmetic
        return arithmetic.in_format(own_format, "weight_gradients")

    def format_of_gradient(self, format: Format) -> Format:
        """Return the format of the gradient of a result of this operation in `format`; its shares are added in it.

        As under automatic mixed precision, each use of an FP32 result has its own cast: the sum is not in 16 bits.
        """
        role = self.recipe.activation_gradients
        return role if isinstance(role, Format) else format

    @cached_property
    def weights(self) -> Format:
        """The format of the updated parameter."""
        return self.recipe.weights

    @cached_property
    def is_compensated(self) -> bool:
        """True if the update keeps the rounding errors of its sums, as Kahan's does."""
        return self.recipe.update == "kahan"

    @cached_property
    def update_rules(self) -> UpdateRules | None:
        """The rounding of an update; None for given random bits, moments with scales, or optional counts."""
        recipe, observer = self.recipe, self.observer
        if self._given_draws is not None or self.moment_cast.scale is not None:
            return None
        if observer is not None and wants_optional_counts(observer):
            return None
        return update_rules_of(recipe, observer is not None)

    @cached_property
    def to_update(self) -> Arithmetic:
        """The arithmetic of an optimizer before the final addition."""
        return self._arithmetic("weights", self.recipe, "update", below=".update")

    def target_of_update(self, stream: str) -> Target:
        """Return the target of results of an update: of "update", "parameter", or a dot and the name of a moment."""
        if stream == "update":
            return self.to_update.target
        return (self.to_moment(stream[1:]) if stream[0] == "." else self.to_parameter).target

    @cached_property
    def moment_cast(self) -> Cast:
        """The cast of moments when they are stored."""
        return cast_of_moments(self.recipe)

    def to_moment(self, name: str) -> Arithmetic:
        """Return the arithmetic of an optimizer for the moment of this name."""
        if name not in self._moments:
            format, rounding = self.moment_cast.format, self.moment_cast.rounding
            arithmetic = self._arithmetic(
                "optimizer_state", self.recipe, "update", format=format, below=f".{name}", rounding=rounding
            )
            self._moments[name] = arithmetic.with_operation("moment")
        return self._moments[name]

    @cached_property
    def to_unscaled(self) -> Arithmetic:
        """The arithmetic that divides the gradient of a parameter by the loss scale."""
        return self._arithmetic("weights", self.recipe, "update", below=".unscale")

    @cached_property
    def to_replicas(self) -> Arithmetic:
        """The arithmetic that sums the gradients of a parameter over replicas."""
        return self._arithmetic("all_reduce", self.recipe, "update", format=self.recipe.weights, below=".all_reduce")

    @cached_property
    def to_clipped(self) -> Arithmetic:
        """The arithmetic that clips the gradient of a parameter, or computes the norm of all gradients."""
        return self._arithmetic("weights", self.recipe, "update", below=".clip" if self.path else "clip")

    @cached_property
    def to_parameter(self) -> Arithmetic:
        """The arithmetic of the final addition, w + u; ValueError for given random bits that it does not use."""
        rounding, draws = mode_of_update(self.recipe), self._given_draws
        arithmetic = self._arithmetic("weights", self.recipe, "update", rounding=rounding)
        if draws is None:
            return arithmetic
        if not rounding.is_stochastic:
            raise ValueError(
                f"draws= are given for {self.path!r}, but its update is {self.recipe.update} and uses none: set "
                "update=stochastic(bits=...) in the policy, or leave the draws out."
            )
        return arithmetic._replace(target=arithmetic.target._replace(stream=draws))

    @property
    def _given_draws(self) -> GivenBits | None:
        """The given random bits for the updates of this parameter."""
        return self.streams.given_draws.get(self.path) if self.streams else None

    def recipe_of_parameter(self, parameter: str) -> Recipe:
        """Return the recipe of the operation for the parameter at this path, which overrides may also name."""
        path = self.path_in_layer(parameter)
        if path not in self.recipes:
            self.recipes[path] = _recipe(self.active_policy.policy, path, self.operations)
            if parameter and path != parameter:
                self.tied[path] = parameter
        return self.recipes[path]

    def path_in_layer(self, parameter: str) -> str:
        """Return the path of a parameter in this layer: a tied one of another layer has the name that it would have
        here.
        """
        path = parameter or self.path
        if self.path and not path.startswith(f"{self.path}."):
            path = f"{self.path}.{path.rpartition('.')[2]}"
        return path

    def input(self, parameter: str | None = None, current_format: Format | None = None) -> Input:
        """Return the rounding of an operand of a contraction: data, an activation, or the parameter at this path.

        If `current_format` is given, all values of the operand are known to be in it.
        """
        operand_input = self._inputs.get((parameter, current_format))
        if operand_input is None:
            operand_input = self._inputs[parameter, current_format] = self._new_input(parameter, current_format)
        return operand_input

    def path_of_input(self, operand: Input) -> str:
        """Return the path at which the policy defines the rounding of this operand: the path of a parameter, or of
        the layer.
        """
        parameters = (parameter for (parameter, _), its_input in self._inputs.items() if its_input is operand)
        parameter = next(parameters, None)
        return self.path if parameter is None else self.path_in_layer(parameter)

    def _new_input(self, parameter: str | None, current_format: Format | None) -> Input:
        if parameter is None:
            cast, operation = as_cast(self.recipe.compute), "cast_input"
        else:
            cast, operation = as_cast(self.recipe_of_parameter(parameter).compute_weights), "cast_weight"
        return Input(cast, operation, current_format is not None and cast.leaves_unchanged(current_format))

    @cached_property
    def gradient(self) -> Input:
        """The rounding of a gradient as an operand of a contraction."""
        return Input(as_cast(self.recipe.compute_gradients), "cast_gradient")

    def round_constant(self, x: NDArray, format: Format) -> NDArray:
        """Round constants that a data movement inserts into an array of `format`; without random bits or events.

        Instead of a stochastic mode, nearest even is used: the values are constants of the program.
        """
        # Random bits used here would shift the stream of the operation, and change all of its later results.
        rounding = self.recipe.rounding
        if rounding.is_stochastic:
            rounding = nearest_even.saturating() if rounding.saturates else nearest_even
        try:
            return round_array(x, Target(format, rounding, carrier_of(format)))
        except ValueError as error:
            raise ValueError(f"{self.where}: {error}") from None

    def roles_used(self) -> Iterator[tuple[str | None, str, Any]]:
        """Yield the roles used so far: the path of the parameter concerned (or None), the name of the role, its
        value.
        """
        # A cached property is in __dict__ after its first use; reading it here would count as a use.
        formats = [self.forward.format] if "forward" in self.__dict__ else list(self._forward)
        yield from ((None, "activations", format) for format in formats)
        for parameter, _ in self._inputs:
            if parameter is None:
                yield None, "compute", self.recipe.compute
            else:
                yield parameter, "compute_weights", self.recipe_of_parameter(parameter).compute_weights
        if self.is_contraction and formats:
            yield None, "accumulate", self.recipe.accumulate
        if "gradient" in self.__dict__:
            yield None, "compute_gradients", self.recipe.compute_gradients
            yield None, "accumulate_gradients", self.recipe.accumulate_gradients
        for (_, parameter, _), arithmetic in self._backward.items():
            yield parameter, "activation_gradients" if parameter is None else "weight_gradients", arithmetic.format
        if self.has_summed:
            yield None, "reduce", self.recipe.reduce

    def _arithmetic(
        self,
        role: str,
        recipe: Recipe,
        phase: str,
        operand: int | None = None,
        format: Format | None = None,
        *,
        below: str = "",
        rounding: Rounding | None = None,
        asked_path: str | None = None,
    ) -> Arithmetic:
        """Return the arithmetic of a role, at the path of the place or at a name `below` it.

        `asked_path` is the path at which the policy defines the role, if it differs.
        """
        path, observer = self.path + below, self.observer
        chosen = getattr(recipe, role)
        target_format = chosen if isinstance(chosen, Format) or format is None else format
        rounding = recipe.rounding if rounding is None else rounding
        located = None
        if observer is not None and wants(observer, path, phase):
            located = WithPath(observer, path, phase, wants_optional_counts(observer))
        streams = self.streams
        stream = streams.stream_at(path, phase, self.operation, operand) if streams else None
        target = Target(target_format, rounding, carrier_of(target_format), stream, located, self.operation)
        accumulate = recipe.accumulate_gradients if phase == "backward" else recipe.accumulate
        refusal = refusal_of(target_format, rounding, role, self.where)
        histories = self.active_policy.histories.histories_at(path, phase, self.operation, operand)
        rotation = self._rotation(recipe) if role == "weight_gradients" else None
        arithmetic = Arithmetic(target, accumulate, recipe.reduce, self.where, {}, refusal, histories, rotation)
        meter = self.active_policy.meter
        if meter is None:
            return arithmetic
        own_format = target_format if self.takes_formats or self.is_written or self.narrow is not None else None
        asked_path = self.path if asked_path is None else asked_path
        site = Site(self.path, asked_path, self.operations, phase, role, own_format)
        # The metering is the last field of an arithmetic.
        return MeteredArithmetic(*arithmetic[:-1], Metering(meter, site, self))

    def _rotation(self, recipe: Recipe) -> Rotation | None:
        """Return the rotation of the operands of a product for the gradient of a parameter; its signs are the same
        everywhere.
        """
        # Both factors must be rotated by the same matrix; otherwise the exact product changes. The signs therefore
        # follow from one stream of the whole simulation. Only its seed is read, so no other random bits change.
        streams, transform = self.streams, recipe.rotation
        if streams is None or not isinstance(transform, Hadamard):
            return None
        return Rotation(transform, streams.stream_at("", "backward", "hadamard"))


@lru_cache(maxsize=1 << 12)
def _recipe(policy: Policy, path: str, operations: tuple[str, ...]) -> Recipe:
    """Return the recipe of the policy; simulations with the same policy share the cache."""
    return policy.recipe(path, *operations)
