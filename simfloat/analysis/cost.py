"""Count the cost of a training step under a policy: multiply-adds, rounded values, bits moved and bytes of state.

The bits of a value with a block scale include the bits of the scale, divided by the size of the block. The work of a
model is counted once, and priced for many policies.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, Protocol

from simfloat.analysis.attribution.measure import results_behind_loss
from simfloat.analysis.attribution.roles_used import is_of_torch, pair_of_batch
from simfloat.arithmetic.blocks import Block
from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.common import Table, check_count, check_loss_function, table
from simfloat.environment import in_usual_environment
from simfloat.formats import BF16, FP32, Format
from simfloat.nn import Module
from simfloat.policy import Policy, policies
from simfloat.policy.policy import as_policy, is_written, keeps_upcasts, policy_in_type
from simfloat.policy.roles import ROLES, WIDEST
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Site, WorkMeter


def value_bits(value: Format | Cast) -> float:
    """Return the bits of a value in a format, or after a cast: with block scales, plus the bits of a scale per
    element."""
    cast = as_cast(value)
    if not isinstance(cast.scale, Block):
        return cast.format.bits
    size = cast.scale.size
    elements = size[0] * size[1] if isinstance(size, tuple) else size
    return cast.format.bits + cast.scale.format.bits / elements


class ParameterState(NamedTuple):
    """The bits that each element of a parameter takes during training.

    `copy` is the copy that contractions read, if it is narrower than the weight. It is counted for every parameter,
    also if no contraction reads the parameter. `compensation` is the compensation of Kahan's update.
    """

    path: str
    elements: int
    weight: float
    copy: float
    gradient: float
    moments: float
    compensation: float

    @property
    def bits(self) -> float:
        """The sum of all bits of an element."""
        return self.weight + self.copy + self.gradient + self.moments + self.compensation


def parameter_state(policy: Policy, path: str, elements: int, moments: int) -> ParameterState:
    """Return the bits that an element of a parameter takes under a policy, with `moments` moments of an optimizer."""
    recipe: Any = policy.recipe(path, "update")
    weight, read = recipe.weights.bits, value_bits(recipe.compute_weights)
    gradient = recipe.weight_gradients
    return ParameterState(
        path,
        elements,
        weight,
        read if read < weight else 0,
        gradient.bits if isinstance(gradient, Format) else min(read, weight),  # for "widest", the bits of the copy
        moments * value_bits(recipe.optimizer_state),
        weight if recipe.update == "kahan" else 0,
    )


#: The name of operations outside all layers.
OUTSIDE_LAYERS = "(model)"


class MultiplyAdds(NamedTuple):
    """The number (`amount`) of multiply-adds of a layer in a phase, with their casts and accumulator."""

    layer: str
    phase: str
    a: Any
    b: Any
    accumulate: Any
    amount: int


class Numbers(NamedTuple):
    """The number (`amount`) of values of a layer that have a role, and the value of the role there."""

    layer: str
    role: str
    value: Any
    amount: int


@dataclass(frozen=True, repr=False)
class PolicyCost:
    """The result of `cost`, for one forward and one backward pass.

    It prints as three tables: multiply-adds by formats, rounded values by role, and everything by layer.

    Parameters:
        policy: the policy.
        products: the multiply-adds, an entry for each layer, phase, pair of casts and accumulator.
        sums: the additions of all other sums, an entry for each layer and accumulator.
        numbers: the rounded values, an entry for each layer, role and format.
        moved: the bits that are read and written, by layer.
        state: the bits of each parameter and of its optimizer state.
    """

    policy: Policy
    products: tuple[MultiplyAdds, ...]
    sums: tuple[Numbers, ...]
    numbers: tuple[Numbers, ...]
    moved: Mapping[str, float]
    state: tuple[ParameterState, ...]

    @property
    def multiply_adds(self) -> int:
        """The number of multiply-adds."""
        return sum(entry.amount for entry in self.products)

    @property
    def bit_operations(self) -> float:
        """The sum over all multiply-adds of the product of the widths of both operands in bits.

        The width of an operand with block scales includes its share of a scale: 4.25 bits for MXFP4. The sum is
        roughly proportional to the chip area of the multipliers. Source: Baskin et al., UNIQ, arXiv 1804.10969,
        without the adders.
        """
        return sum(entry.amount * value_bits(entry.a) * value_bits(entry.b) for entry in self.products)

    @property
    def bits_moved(self) -> float:
        """The bits that are read and written."""
        return sum(self.moved.values())

    @property
    def state_bytes(self) -> float:
        """The bytes of all parameters, including gradients, optimizer state, copies and compensations."""
        return sum(entry.elements * entry.bits for entry in self.state) / 8

    @property
    @in_usual_environment
    def bytes_per_parameter(self) -> float:
        """The bytes of `state_bytes` divided by the number of elements of all parameters."""
        return self.state_bytes / max(sum(entry.elements for entry in self.state), 1)

    def by_formats(self) -> Table:
        """Return the multiply-adds by phase, operands and accumulator, and the additions of other sums."""
        amounts: Counter[tuple[str, str, str]] = Counter()
        for product in self.products:
            amounts[product.phase, f"{product.a} x {product.b}", str(product.accumulate)] += product.amount
        for entry in self.sums:
            amounts["both", "other sums", str(entry.value)] += entry.amount
        rows = [(*names, f"{count:,}") for names, count in amounts.items()]
        return table([("phase", "operands", "accumulated by", "multiply-adds"), *rows], number_columns=1)

    def by_role(self) -> Table:
        """Return the number of rounded values by role and format."""
        amounts: Counter[tuple[str, str]] = Counter()
        for entry in self.numbers:
            amounts[entry.role, str(entry.value)] += entry.amount
        rows = [(*names, f"{count:,}") for names, count in amounts.items()]
        return table([("role", "rounded to", "numbers"), *rows], number_columns=1)

    def by_layer(self) -> Table:
        """Return a table with a row for each layer and one for the whole model.

        The columns are multiply-adds, rounded values, bits moved, parameters, and bytes of state for each parameter.
        """
        layers = list(dict.fromkeys(self.moved))
        homes = {entry.path: _layer_of_parameter(entry.path, layers) for entry in self.state}
        layers += [home for home in dict.fromkeys(homes.values()) if home not in layers]
        rows: list[tuple[str, ...]] = [("layer", "multiply-adds", "numbers", "bits moved", "parameters", "bytes each")]
        for layer in layers:
            state = [entry for entry in self.state if homes[entry.path] == layer]
            rows.append((layer or OUTSIDE_LAYERS, *self._cells([layer], state)))
        rows.append(("total", *self._cells(layers, self.state)))
        return table(rows, number_columns=5)

    def _cells(self, layers: Sequence[str], state: Sequence[ParameterState]) -> tuple[str, ...]:
        multiply_adds = sum(entry.amount for entry in self.products if entry.layer in layers)
        numbers = sum(entry.amount for entry in self.numbers if entry.layer in layers)
        moved = sum(self.moved.get(layer, 0.0) for layer in layers)
        elements, bits = sum(s.elements for s in state), sum(s.elements * s.bits for s in state)
        each = f"{bits / elements / 8:.4g}" if elements else ""
        return f"{multiply_adds:,}", f"{numbers:,}", f"{moved:,.0f}", f"{elements:,}", each

    def __repr__(self) -> str:
        return f"{self.by_formats()}\n\n{self.by_role()}\n\n{self.by_layer()}"

    def _repr_html_(self) -> str:
        tables = (self.by_formats(), self.by_role(), self.by_layer())
        return f"<b>{escape(self.policy.name or 'Policy')}</b>" + "".join(each._repr_html_() for each in tables)


def _layer_of_parameter(parameter: str, layers: Iterable[str]) -> str:
    """Return the layer that shows a parameter: the innermost layer that runs around it, or its own module."""
    around = [layer for layer in layers if parameter.startswith(f"{layer}.")]
    return max(around, key=len) if around else parameter.rpartition(".")[0]


Loss = Callable[[Any, Any], Any]

#: The policy under which work is counted: it supports every operation, and its sums are fast.
COUNTING_POLICY = "fp32"

#: The same for policies under which results are in FP32 after an upcast of a PyTorch program.
COUNTING_UPCASTS = Policy(compute=FP32, activations=BF16)


def cost(model: Any, loss_fn: Loss, batch: tuple[Any, Any], policy: Policy | str, *, moments: int = 2) -> PolicyCost:
    """Count the cost of a forward and a backward pass of a model on a batch under a policy, by layer.

    The result contains these counts:

    * Multiply-adds, by the formats of both operands and the accumulator, and the additions of all other sums.
    * Rounded values, by role and format.
    * Bits moved. Every operation is assumed to read its operands from memory and to write its results there. Operands
      of contractions are counted in the formats that they are rounded to. An operand with block scales also counts the
      bits of a scale, divided by the size of a whole block. All other operands are counted in the format of the result.
    * Bytes of state for each parameter: the weight, the gradient, the moments of the optimizer, the compensation of
      Kahan's update, and the copy that contractions read if it is narrower than the weight (for all parameters). The
      field `state` has these numbers.

    Convolutions count every position of their kernels, including zeros of the padding. Each of the two gradients of a
    convolution is as much work as the convolution itself. For many policies on one model, use :func:`count_work`.

    Parameters:
        model: a simfloat.nn.Module or a torch.nn.Module. It does not change.
        loss_fn: the loss; ``loss_fn(model(x), y)`` must be one value.
        batch: a pair (x, y).
        policy: a Policy, or its name. A PyTorch program is counted in its own dtypes under "as-written".
        moments: the number of moments that the optimizer stores for each parameter: 2 for Adam, 1 for SGD with
            momentum, 0 for plain SGD.

    Returns:
        A `PolicyCost`, which prints as tables.

    Raises:
        ValueError: if `model`, `loss_fn` or `batch` is invalid; if an override matches nothing.

    Examples:
        >>> model = sf.nn.MLP([2, 8, 1], rng=0)
        >>> found = sf.cost(model, sf.nn.mse_loss, (np.ones((4, 2)), np.ones((4, 1))), "fp8-hybrid")
        >>> found.multiply_adds  # forward 4 (2 8 + 8 1), backward the same to weights, and 4 8 1 to activations
        224
    """
    return _new_work(model, loss_fn, batch, moments).cost(policy)


def count_work(model: Any, loss_fn: Loss, batch: tuple[Any, Any], *, moments: int = 2) -> ModelWork:
    """Count the work of a forward and a backward pass of a model on a batch once, to price it for many policies.

    ``count_work(...).cost(policy)`` returns the same as ``cost(..., policy)`` in a fraction of the time. So a function
    of policies, such as ``lambda policy: work.cost(policy).bits_moved``, can be evaluated for many of them. Some
    policies change the work: results take the widest format of their operands, composites are rounded once, operands
    are rotated, or formats follow the dtypes of a program. For each of these the work is counted once more.

    Parameters:
        model: a simfloat.nn.Module or a torch.nn.Module. It does not change.
        loss_fn: the loss; ``loss_fn(model(x), y)`` must be one value.
        batch: a pair (x, y).
        moments: the number of moments that the optimizer stores for each parameter, as in :func:`cost`.

    Returns:
        A `ModelWork`; its method `cost` takes a policy.

    Raises:
        ValueError: if `model`, `loss_fn` or `batch` is invalid, or `moments` is negative.

    Examples:
        >>> model = sf.nn.MLP([2, 8, 1], rng=0)
        >>> work = sf.count_work(model, sf.nn.mse_loss, (np.ones((4, 2)), np.ones((4, 1))))
        >>> [work.cost(name).state_bytes / model.head.weight.size for name in ("fp32", "bf16-standard")]
        [66.0, 33.0]
    """
    work = _new_work(model, loss_fn, batch, moments)
    work.count()
    return work


def _new_work(model: Any, loss_fn: Loss, batch: tuple[Any, Any], moments: int) -> ModelWork:
    """Return the work of a model, which is not counted yet."""
    check_count("moments", moments, 0)
    check_loss_function(loss_fn)
    pair = pair_of_batch(batch)
    return ModelWork(_new_pass(model), loss_fn, pair, moments)


class WorkPass(Protocol):
    """A protocol: a forward and a backward pass of copies of one model."""

    model: Any

    def format_of(self, parameter: Any) -> Format:
        """Return the format of the dtype of a parameter."""

    def run(self, loss_fn: Loss, batch: tuple[Any, Any], policy: Policy, meter: WorkMeter) -> None:
        """Run both passes under a policy, and count their work."""


def _new_pass(model: Any) -> WorkPass:
    if not is_of_torch(model, "cost"):
        return TensorPass(model)
    from simfloat.analysis.attribution.torch_models import TorchPass

    return TorchPass(model)


class TensorPass:
    """A forward and a backward pass of copies of a model of this package."""

    def __init__(self, model: Module) -> None:
        self.model = model

    def format_of(self, parameter: Any) -> Format:
        """Return FP32: parameters of this package have no dtype that a policy follows."""
        return FP32

    def run(self, loss_fn: Loss, batch: tuple[Any, Any], policy: Policy, meter: WorkMeter) -> None:
        """Run both passes under a policy, and count their work."""
        model, simulation = copy.deepcopy(self.model), Simulation(policy)
        simulation.meter = meter
        model.zero_grad()  # parameters without gradients: nothing is added
        with simulation:
            loss = loss_fn(model(batch[0]), batch[1])
            results_behind_loss(
                loss, {id(parameter) for parameter in model.parameters()}
            )  # raises ValueError for an invalid loss
            loss.backward()


class ModelWork:
    """The work of a model, loss and batch that `count_work` counted; `cost` prices it for a policy."""

    def __init__(self, one_pass: WorkPass, loss_fn: Loss, batch: tuple[Any, Any], moments: int) -> None:
        self._pass, self._loss_fn, self._batch, self._moments = one_pass, loss_fn, batch, moments
        self._meters: dict[Policy, WorkMeter] = {}
        named = one_pass.model.named_parameters()
        self._parameters = [(path, _size(parameter), one_pass.format_of(parameter)) for path, parameter in named]
        self._modules = [path for path, _ in one_pass.model.named_modules()]

    def count(self) -> None:
        """Count the work under the policy that supports every operation."""
        self._count_under(policies[COUNTING_POLICY])

    def cost(self, policy: Policy | str) -> PolicyCost:
        """Return the cost of the work under a policy, as :func:`cost` does."""
        chosen = as_policy(policy, "cost")
        usual = COUNTING_UPCASTS if keeps_upcasts(chosen) else policies[COUNTING_POLICY]
        meter = self._count_under(chosen if _changes_work(chosen) else usual)
        self._check_matched(chosen, meter)
        prices = _Prices(chosen)
        state = [
            parameter_state(policy_in_type(chosen, type) if is_written(chosen) else chosen, path, size, self._moments)
            for path, size, type in self._parameters
        ]
        return PolicyCost(chosen, prices.products(meter), prices.sums(meter), prices.numbers(meter),
                          prices.bits_moved(meter), tuple(state))  # fmt: skip

    def _count_under(self, policy: Policy) -> WorkMeter:
        if policy not in self._meters:
            self._meters[policy] = WorkMeter()
            self._pass.run(self._loss_fn, self._batch, policy, self._meters[policy])
        return self._meters[policy]

    def _check_matched(self, policy: Policy, meter: WorkMeter) -> None:
        """Raise ValueError if an override matches no layer, parameter or operation of the model."""
        sites = [*meter.results, *meter.operands]
        paths = [*self._modules, *(path for path, _, _ in self._parameters), *(site.path for site in sites)]
        operations = [operation for site in sites for operation in site.operations]
        policy.check_matched(dict.fromkeys(paths), list(dict.fromkeys(operations)))

    def __repr__(self) -> str:
        parameters = sum(size for _, size, _ in self._parameters)
        meter = self._count_under(policies[COUNTING_POLICY])
        return f"ModelWork({sum(meter.products.values())} multiply-adds, {parameters} parameters)"


class _Prices:
    """The values of the roles of a policy at sites; each is looked up once."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._recipes: dict[tuple[str, tuple[str, ...]], Any] = {}

    def role_value(self, site: Site, role: str | None = None) -> Any:
        """Return the value of a role at a site; the default is the role of the site."""
        if site.format is not None and role is None:
            return site.format
        key = site.path, site.operations
        if key not in self._recipes:
            self._recipes[key] = self._policy.recipe(site.path, *site.operations)
        return getattr(self._recipes[key], role or site.role)

    def products(self, meter: WorkMeter) -> tuple[MultiplyAdds, ...]:
        """Return the multiply-adds; equal ones are added up."""
        amounts: Counter[Any] = Counter()
        for (result, a, b), count in meter.products.items():
            accumulate = self.role_value(result, "accumulate_gradients" if result.phase == "backward" else "accumulate")
            amounts[result.layer, result.phase, self.role_value(a), self.role_value(b), accumulate] += count
        return tuple(MultiplyAdds._make((*key, amount)) for key, amount in amounts.items())

    def sums(self, meter: WorkMeter) -> tuple[Numbers, ...]:
        """Return the additions of other sums, by layer and accumulator."""
        return _sum_by_key(
            (site, "reduce", self.role_value(site, "reduce"), count) for site, count in meter.sums.items()
        )

    def numbers(self, meter: WorkMeter) -> tuple[Numbers, ...]:
        """Return the numbers of rounded values, results and operands, by layer, role and format."""
        counts = [*meter.results.items(), *meter.operands.items()]
        return _sum_by_key((site, site.role, self.role_value(site), count) for site, count in counts)

    def bits_moved(self, meter: WorkMeter) -> dict[str, float]:
        """Return the bits that are read and written, by layer."""
        bits_by_layer: dict[str, float] = {}
        for counts in (meter.results, meter.read, meter.operands):
            for site, count in counts.items():
                bits_by_layer[site.layer] = bits_by_layer.get(site.layer, 0.0) + count * value_bits(
                    self.role_value(site)
                )
        return bits_by_layer


def _sum_by_key(entries: Iterable[tuple[Site, str, Any, int]]) -> tuple[Numbers, ...]:
    amounts: Counter[Any] = Counter()
    for site, role, value, count in entries:
        amounts[site.layer, role, value] += count
    return tuple(Numbers._make((*key, amount)) for key, amount in amounts.items())


def _changes_work(policy: Policy) -> bool:
    """True if a policy changes the set of operations, or lets formats follow from operands or dtypes."""
    pairs = [(role, getattr(policy, role)) for role in ROLES]
    pairs += [pair for override in policy.overrides for pair in override.roles]
    return any(value == WIDEST or role in ("fused", "rotation", "written") and value for role, value in pairs)


def _size(parameter: Any) -> int:
    """Return the number of elements of a parameter of either front end."""
    size = parameter.size
    return int(parameter.numel() if callable(size) else size)


__all__ = ["cost", "count_work"]
