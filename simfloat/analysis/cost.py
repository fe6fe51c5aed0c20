"""The cost of a training step under a policy: multiply-adds, numbers, bits moved, bytes of state, as tables.

Numbers take bits in memory: operands with the scales of their blocks, and the state of parameters. The work of a model
is counted once and priced for many policies.
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
from simfloat.formats import Format
from simfloat.nn import Module
from simfloat.policy import Policy, policies
from simfloat.policy.policy import as_policy
from simfloat.policy.roles import ROLES, WIDEST
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Site, WorkMeter


def value_bits(value: Format | Cast) -> float:
    """The bits of a number of the format, or of one that a cast made, with its share of the scale of its block."""
    cast = as_cast(value)
    if not isinstance(cast.scale, Block):
        return cast.format.bits
    size = cast.scale.size
    elements = size[0] * size[1] if isinstance(size, tuple) else size
    return cast.format.bits + cast.scale.format.bits / elements


class ParameterState(NamedTuple):
    """The bits that each element of a parameter takes while it is trained.

    copy: what contractions read, where that is narrower than the weight; compensation: what Kahan's update keeps.
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
        """All of them together, an element."""
        return self.weight + self.copy + self.gradient + self.moments + self.compensation


def parameter_state(policy: Policy, path: str, elements: int, moments: int) -> ParameterState:
    """Return the bits that an element of a parameter takes under a policy, with so many moments of an optimizer."""
    recipe: Any = policy.recipe(path, "update")
    weight, read = recipe.weights.bits, value_bits(recipe.compute_weights)
    gradient = recipe.weight_gradients
    return ParameterState(
        path,
        elements,
        weight,
        read if read < weight else 0,
        gradient.bits if isinstance(gradient, Format) else min(read, weight),  # "widest": as the copy
        moments * recipe.optimizer_state.bits,
        weight if recipe.update == "kahan" else 0,
    )


#: What of the model runs in no layer.
OUTSIDE_LAYERS = "(model)"


class MultiplyAdds(NamedTuple):
    """How many multiply-adds a layer makes in a phase, of operands rounded so, through this accumulator."""

    layer: str
    phase: str
    a: Any
    b: Any
    accumulate: Any
    amount: int


class Numbers(NamedTuple):
    """How many numbers of a layer concern a role, and what that is there."""

    layer: str
    role: str
    value: Any
    amount: int


@dataclass(frozen=True, repr=False)
class PolicyCost:
    """What `cost` found, of one forward and backward pass.

    `products`, `sums` and `numbers` have an entry for each layer and each way in which something is rounded there,
    `moved` the bits by layer, `state` what is kept of each parameter. Printed, it is three tables: multiply-adds by
    formats, numbers by role, and all of it by layer.
    """

    policy: Policy
    products: tuple[MultiplyAdds, ...]
    sums: tuple[Numbers, ...]
    numbers: tuple[Numbers, ...]
    moved: Mapping[str, float]
    state: tuple[ParameterState, ...]

    @property
    def multiply_adds(self) -> int:
        """How many multiply-adds there are."""
        return sum(entry.amount for entry in self.products)

    @property
    def bit_operations(self) -> float:
        """Multiply-adds, each times the widths of both operands in bits: what multipliers take of a chip, about.

        Source: Baskin et al., UNIQ, arXiv 1804.10969, without the adders.
        """
        return sum(entry.amount * value_bits(entry.a) * value_bits(entry.b) for entry in self.products)

    @property
    def bits_moved(self) -> float:
        """The bits that are read and written."""
        return sum(self.moved.values())

    @property
    def state_bytes(self) -> float:
        """The bytes of all parameters with what is kept beside them."""
        return sum(entry.elements * entry.bits for entry in self.state) / 8

    @property
    def bytes_per_parameter(self) -> float:
        """The bytes of `state_bytes` divided by the number of elements of all parameters."""
        return self.state_bytes / max(sum(entry.elements for entry in self.state), 1)

    def by_formats(self) -> Table:
        """The multiply-adds by phase, formats of operands and accumulator, and the additions of other sums."""
        amounts: Counter[tuple[str, str, str]] = Counter()
        for product in self.products:
            amounts[product.phase, f"{product.a} x {product.b}", str(product.accumulate)] += product.amount
        for entry in self.sums:
            amounts["both", "other sums", str(entry.value)] += entry.amount
        rows = [(*names, f"{count:,}") for names, count in amounts.items()]
        return table([("phase", "operands", "accumulated by", "multiply-adds"), *rows], number_columns=1)

    def by_role(self) -> Table:
        """The numbers that are rounded, by role and format."""
        amounts: Counter[tuple[str, str]] = Counter()
        for entry in self.numbers:
            amounts[entry.role, str(entry.value)] += entry.amount
        rows = [(*names, f"{count:,}") for names, count in amounts.items()]
        return table([("role", "rounded to", "numbers"), *rows], number_columns=1)

    def by_layer(self) -> Table:
        """A row for each layer, and one for all: multiply-adds, numbers, bits moved, bytes of state a parameter."""
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
    """The layer that a parameter is shown with: the innermost one that runs around it, or its own module."""
    around = [layer for layer in layers if parameter.startswith(f"{layer}.")]
    return max(around, key=len) if around else parameter.rpartition(".")[0]


Loss = Callable[[Any, Any], Any]

#: The policy under which work is counted: it refuses nothing, and its sums are quick.
COUNTING_POLICY = "fp32"


def cost(model: Any, loss_fn: Loss, batch: tuple[Any, Any], policy: Policy | str, *, moments: int = 2) -> PolicyCost:
    """What a forward and a backward pass of the model on a batch cost under a policy, by layer.

    * multiply-adds, by the formats of both operands and the accumulator, and the additions of all other sums;
    * numbers that are rounded, by role and format;
    * bits moved, where every operation reads its operands from memory and writes its results there: operands of
      contractions in the formats that they are rounded to, with their share of the scale of a whole block, all others
      in the format of the result;
    * bytes of state a parameter: weight, gradient, `moments` of an optimizer (2 as Adam's, 1 as of SGD with momentum,
      0), what Kahan's update keeps, and the copy that contractions read where it is narrower than the weight.

    Convolutions count every place of their kernels, zeros in the padding too; either gradient of one is as much work as
    itself. model is a simfloat.nn.Module or a torch.nn.Module, which stays as it is; batch is a pair (x, y), of
    which ``loss_fn(model(x), y)`` is a single number. For many policies on one model see :func:`count_work`.

    Raises ValueError for a model, loss or batch that is none, and for an override that matches nothing.

    Examples:
        >>> model = sf.nn.MLP([2, 8, 1], rng=0)
        >>> found = sf.cost(model, sf.nn.mse_loss, (np.ones((4, 2)), np.ones((4, 1))), "fp8-hybrid")
        >>> found.multiply_adds  # forward 4 (2 8 + 8 1), backward the same to weights, and 4 8 1 to activations
        224
    """
    return count_work(model, loss_fn, batch, moments=moments).cost(policy)


def count_work(model: Any, loss_fn: Loss, batch: tuple[Any, Any], *, moments: int = 2) -> ModelWork:
    """The work of a forward and a backward pass of the model on a batch, counted once, to be priced for many policies.

    Arguments are those of :func:`cost`; ``count_work(...).cost(policy)`` is ``cost(..., policy)`` in a fraction of the
    time: a function of policies such as ``lambda policy: work.cost(policy).bits_moved`` is soon asked for many.
    Policies under which results take the widest format of their operands, composites are fused, or operands are
    rotated do other work, which is counted once more for each of them.

    Examples:
        >>> model = sf.nn.MLP([2, 8, 1], rng=0)
        >>> work = sf.count_work(model, sf.nn.mse_loss, (np.ones((4, 2)), np.ones((4, 1))))
        >>> [work.cost(name).state_bytes / model.head.weight.size for name in ("fp32", "bf16-standard")]
        [66.0, 33.0]
    """
    check_count("moments", moments, 0)
    check_loss_function(loss_fn)
    pair = pair_of_batch(batch)
    return ModelWork(_new_pass(model), loss_fn, pair, moments)


class WorkPass(Protocol):
    """A forward and a backward pass of copies of one model."""

    model: Any

    def check(self, policy: Policy) -> None:
        """Raise ValueError for a policy whose work these passes cannot count."""

    def run(self, loss_fn: Loss, batch: tuple[Any, Any], policy: Policy, meter: WorkMeter) -> None:
        """Run both passes under a policy, and count their work."""


def _new_pass(model: Any) -> WorkPass:
    if not is_of_torch(model, "cost"):
        return TensorPass(model)
    from simfloat.analysis.torch_work import TorchPass

    return TorchPass(model)


class TensorPass:
    """A forward and a backward pass of copies of a model of this package."""

    def __init__(self, model: Module) -> None:
        self.model = model

    def check(self, policy: Policy) -> None:
        """Accept every policy."""

    def run(self, loss_fn: Loss, batch: tuple[Any, Any], policy: Policy, meter: WorkMeter) -> None:
        """Run both passes under a policy, and count their work."""
        model, simulation = copy.deepcopy(self.model), Simulation(policy)
        simulation.meter = meter
        model.zero_grad()  # added to none, gradients of parameters are no sums
        with simulation:
            loss = loss_fn(model(batch[0]), batch[1])
            results_behind_loss(
                loss, {id(parameter) for parameter in model.parameters()}
            )  # refuses what is no loss of the copy's
            loss.backward()


class ModelWork:
    """The work of a model, loss and batch that `count_work` counted; `cost` prices it."""

    def __init__(self, one_pass: WorkPass, loss_fn: Loss, batch: tuple[Any, Any], moments: int) -> None:
        self._pass, self._loss_fn, self._batch, self._moments = one_pass, loss_fn, batch, moments
        self._meters: dict[Policy, WorkMeter] = {}
        model = one_pass.model
        self._parameters = [(path, _size(parameter)) for path, parameter in model.named_parameters()]
        self._modules = [path for path, _ in model.named_modules()]
        self._meter = self._count_under(policies[COUNTING_POLICY])

    def cost(self, policy: Policy | str) -> PolicyCost:
        """What the work costs under a policy: see :func:`cost`."""
        chosen = as_policy(policy, "cost")
        self._pass.check(chosen)
        meter = self._count_under(chosen) if _changes_work(chosen) else self._meter
        self._check_matched(chosen)
        prices = _Prices(chosen)
        state = [parameter_state(chosen, path, size, self._moments) for path, size in self._parameters]
        return PolicyCost(chosen, prices.products(meter), prices.sums(meter), prices.numbers(meter),
                          prices.bits_moved(meter), tuple(state))  # fmt: skip

    def _count_under(self, policy: Policy) -> WorkMeter:
        if policy not in self._meters:
            self._meters[policy] = WorkMeter()
            self._pass.run(self._loss_fn, self._batch, policy, self._meters[policy])
        return self._meters[policy]

    def _check_matched(self, policy: Policy) -> None:
        """Raise ValueError for an override that matches nothing of the model and its operations."""
        sites = [*self._meter.results, *self._meter.operands]
        paths = [*self._modules, *(path for path, _ in self._parameters), *(site.path for site in sites)]
        operations = [operation for site in sites for operation in site.operations]
        policy.check_matched(dict.fromkeys(paths), list(dict.fromkeys(operations)))

    def __repr__(self) -> str:
        parameters = sum(size for _, size in self._parameters)
        return f"ModelWork({sum(self._meter.products.values())} multiply-adds, {parameters} parameters)"


class _Prices:
    """The values of a policy's roles at sites, each asked for once."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._recipes: dict[tuple[str, tuple[str, ...]], Any] = {}

    def role_value(self, site: Site, role: str | None = None) -> Any:
        """The value of a role there, of the site's own by default."""
        if site.format is not None and role is None:
            return site.format
        key = site.path, site.operations
        if key not in self._recipes:
            self._recipes[key] = self._policy.recipe(site.path, *site.operations)
        return getattr(self._recipes[key], role or site.role)

    def products(self, meter: WorkMeter) -> tuple[MultiplyAdds, ...]:
        """The multiply-adds, those alike together."""
        amounts: Counter[Any] = Counter()
        for (result, a, b), count in meter.products.items():
            accumulate = self.role_value(result, "accumulate_gradients" if result.phase == "backward" else "accumulate")
            amounts[result.layer, result.phase, self.role_value(a), self.role_value(b), accumulate] += count
        return tuple(MultiplyAdds._make((*key, amount)) for key, amount in amounts.items())

    def sums(self, meter: WorkMeter) -> tuple[Numbers, ...]:
        """The additions of other sums, by layer and accumulator."""
        return _add_alike(
            (site, "reduce", self.role_value(site, "reduce"), count) for site, count in meter.sums.items()
        )

    def numbers(self, meter: WorkMeter) -> tuple[Numbers, ...]:
        """The numbers that are rounded, results and operands, by layer, role and format."""
        counts = [*meter.results.items(), *meter.operands.items()]
        return _add_alike((site, site.role, self.role_value(site), count) for site, count in counts)

    def bits_moved(self, meter: WorkMeter) -> dict[str, float]:
        """The bits that are read and written, by layer."""
        bits_by_layer: dict[str, float] = {}
        for counts in (meter.results, meter.read, meter.operands):
            for site, count in counts.items():
                bits_by_layer[site.layer] = bits_by_layer.get(site.layer, 0.0) + count * value_bits(
                    self.role_value(site)
                )
        return bits_by_layer


def _add_alike(entries: Iterable[tuple[Site, str, Any, int]]) -> tuple[Numbers, ...]:
    amounts: Counter[Any] = Counter()
    for site, role, value, count in entries:
        amounts[site.layer, role, value] += count
    return tuple(Numbers._make((*key, amount)) for key, amount in amounts.items())


def _changes_work(policy: Policy) -> bool:
    """Whether a policy changes which operations there are, or lets formats follow from operands."""
    pairs = [(role, getattr(policy, role)) for role in ROLES]
    pairs += [pair for override in policy.overrides for pair in override.roles]
    return any(value == WIDEST or role in ("fused", "rotation") and value for role, value in pairs)


def _size(parameter: Any) -> int:
    """How many elements a parameter of either front end has."""
    size = parameter.size
    return int(parameter.numel() if callable(size) else size)


__all__ = ["cost", "count_work"]
