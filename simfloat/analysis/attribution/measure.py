"""Measure the effect of each part of a policy on a gradient.

Each measurement uses a policy that differs from a reference only in some parts. The result is a table, and a grid for a
heat map.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from glob import escape
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.analysis.attribution.roles_used import (
    STORED,
    MadeTensor,
    PolicyPart,
    is_of_torch,
    pair_of_batch,
    policy_parts,
)
from simfloat.arithmetic.machines import on_cpu
from simfloat.autodiff import Tensor
from simfloat.autodiff.variable import Variable
from simfloat.common import Table, check_loss_function, table
from simfloat.nn import Module
from simfloat.optim.clipping import sum_of_squares
from simfloat.policy import Policy
from simfloat.policy.overrides import path_matches
from simfloat.policy.policy import as_policy
from simfloat.policy.roles import ROLES, WIDEST
from simfloat.simulation import simulate

#: Rows of the table that is printed.
SHOWN_COSTS = 20

#: The fields that an attribution can be grouped by.
FIELDS = ("operation", "layer", "role")


class Cost(NamedTuple):
    """The relative error of the gradient if only this part runs under the policy.

    Fields that are not in `by` are empty. The operation of the storage of a parameter is ``"(parameter)"``; the layer
    of operations outside all layers is ``"(model)"``.
    """

    operation: str
    layer: str
    role: str
    error: float


class CostGrid(NamedTuple):
    """The costs by two fields: the names of rows and columns, and the errors, which are zero for missing costs."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    errors: NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Attribution:
    """The result of `attribute`: the costs in the order of the program, and the error under the whole policy.

    It prints as a table of the largest costs. `table` returns all of them, and `grid` the values for a heat map.

    Parameters:
        measured: the costs, in the order of the program.
        total: the relative error of the gradient under the whole policy.
        by: the fields that the costs are grouped by.
    """

    measured: tuple[Cost, ...]
    total: float
    by: tuple[str, ...]

    @property
    def costs(self) -> tuple[Cost, ...]:
        """All costs, the largest first."""
        return tuple(sorted(self.measured, key=lambda cost: -cost.error))

    def table(self, most: int | None = None) -> Table:
        """Return a table of all costs, or of the `most` largest ones, below the error under the whole policy."""
        shown = self.costs if most is None else self.costs[:most]
        rows = [(*self.by, "error"), ("(whole policy)", *("" for _ in self.by[1:]), f"{self.total:.2e}")]
        rows += [(*(getattr(cost, field) for field in self.by), f"{cost.error:.2e}") for cost in shown]
        return table(rows, number_columns=1)

    def grid(self, rows: str = "layer", columns: str = "operation") -> CostGrid:
        """Return the costs by two of the fields in `by`.

        Several costs of one cell are added like independent errors: the root of the sum of their squares. Names are in
        the order in which the model uses them.

        Parameters:
            rows, columns: two of the fields in `by`.

        Returns:
            A `CostGrid`, with the names of rows and columns and a matrix of errors.

        Raises:
            ValueError: if the attribution is not grouped by one of the fields.
        """
        for field in (rows, columns):
            if field not in self.by:
                fields = ", ".join(self.by)
                raise ValueError(f"grid(rows, columns) takes two of the fields {fields}; got {field!r}.")
        names = [tuple(dict.fromkeys(getattr(cost, field) for cost in self.measured)) for field in (rows, columns)]
        squares = np.zeros([len(each) for each in names])
        for cost in self.measured:
            cell = tuple(
                field_names.index(getattr(cost, field))
                for field_names, field in zip(names, (rows, columns), strict=True)
            )
            squares[cell] += cost.error**2
        return CostGrid(names[0], names[1], np.sqrt(squares))

    def __repr__(self) -> str:
        hidden = len(self.measured) - SHOWN_COSTS
        return f"{self.table(SHOWN_COSTS)}" + (f"\n... and {hidden} smaller ones" if hidden > 0 else "")

    def _repr_html_(self) -> str:
        return self.table(SHOWN_COSTS)._repr_html_()


#: The target of an override: the operation (None for the storage of a parameter) and the role.
OverridePlace = tuple[str | None, str]


def explicit_policy(reference: Policy) -> Policy:
    """Give every role of the reference an explicit value, so that no role follows another one that is changed.

    Raises ValueError if the reference has overrides, or if its results have the widest format of their operands.
    """
    roles = {role: getattr(reference.recipe(), role) for role in ROLES}
    if reference.overrides or WIDEST in (roles["activations"], roles["gradients"]):
        raise ValueError(
            "reference must be a policy without overrides and without activations='widest', such as 'fp64' or "
            f"'fp32'; got {reference!r}."
        )
    return Policy(**roles)


class Probes:
    """Policies that carry out chosen parts as the policy does, and everything else as the reference does."""

    def __init__(self, base: Policy, parts: Iterable[PolicyPart]) -> None:
        self.base = base
        self._paths: dict[OverridePlace, dict[str, None]] = {}
        for part in parts:
            for where in _override_places(part):
                self._paths.setdefault(where, {})[part.path] = None

    def is_changed(self, part: PolicyPart) -> bool:
        """True if the part is carried out differently than under the reference."""
        return any(value != getattr(self.base, role) for role, value in part.values.items())

    def policy_with_parts(self, chosen: Iterable[PolicyPart]) -> Policy:
        """Return the reference with the values of the policy for these parts."""
        values_by_place: dict[OverridePlace, dict[str, Any]] = {}
        for part in chosen:
            for where in _override_places(part):
                values_by_place.setdefault(where, {})[part.path] = part.values[where[1]]
        policy = self.base
        for (operation, role), values in values_by_place.items():
            for path, value in self._overrides((operation, role), values):
                policy = policy.override(escape(path), operation=operation, **{role: value})
        return policy

    def _overrides(self, where: OverridePlace, values: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """Return paths with their values; a path inside a chosen layer gets its own value back."""
        standard = getattr(self.base, where[1])
        overrides: list[tuple[str, Any]] = []
        for path in sorted(self._paths[where], key=lambda path: len(path.split(".")) if path else 0):
            want = values.get(path, standard)
            outer_values = [value for outer, value in overrides if path_matches(escape(outer), path)]
            if want != (outer_values[-1] if outer_values else standard):
                overrides.append((path, want))
        return overrides


def _override_places(part: PolicyPart) -> list[OverridePlace]:
    return [(None if part.operation == STORED else part.operation, role) for role in part.values]


def checked_modes(base: Policy, parts: Iterable[PolicyPart]) -> None:
    """Raise ValueError if results in the formats of the reference cannot be rounded in the modes of the policy."""
    widest = max(getattr(base, role).precision for role in ("activations", "activation_gradients", "weight_gradients"))
    for part in parts:
        if "rounding" in part.values and widest > 50:
            raise ValueError(
                f"The policy rounds {part.operation} by {part.values['rounding']}, but FP64 supports only rounding to "
                "nearest even; pass reference='fp32'."
            )


Loss = Callable[[Any, Any], Any]


def attribute(
    model: Any,
    loss_fn: Loss,
    batch: tuple[Any, Any],
    policy: Policy | str,
    reference: Policy | str = "fp64",
    *,
    by: Sequence[str] = FIELDS,
    seed: int = 0,
) -> Attribution:
    """Measure how much each operation, layer and role contributes to the error of a gradient.

    Each measurement runs one part under `policy` and everything else under `reference`.

    The error of a gradient is the 2-norm of its difference from the gradient under the reference, for all parameters
    together, divided by the norm of the latter. It is infinite if the gradient is not finite.

    The roles are the roles of a policy: the rounding of operands, results, gradients, sums and stored parameters.
    Results in `widest` operations count in the format that they have under the policy. A composite that is rounded once
    counts as one operation. The operands and the sum of a matrix unit or a fused sum are measured together, because the
    unit accepts only its own formats.

    Parameters:
        model: a simfloat.nn.Module or a torch.nn.Module. It does not change. Copies of a PyTorch model run in float64,
            which can represent every format, and use the same random numbers of PyTorch. A copy also
            runs in the dtypes of the program if the policy follows them, as "as-written" does.
        loss_fn: the loss; ``loss_fn(model(x), y)`` must be one value.
        batch: a pair (x, y).
        policy: the policy to analyze, or its name.
        reference: the policy for everything that is not measured, or its name; it has no overrides.
        by: the fields that parts are grouped by: "operation", "layer", "role" or several of them. Each group costs a
            forward and a backward pass; ``by=["operation"]`` takes each operation in all layers at once.
        seed: the seed of the random streams, the same for all runs.

    Returns:
        An `Attribution`, which prints as a table.

    Raises:
        ValueError: if the reference has overrides; if `by` contains an unknown field; if the loss has its own
            parameters or no gradient; if results in the formats of the reference cannot be rounded in the modes of the
            policy.

    Examples:
        >>> model = sf.nn.MLP([2, 4, 1], rng=0)
        >>> x = np.random.default_rng(0).standard_normal((8, 2))
        >>> table = sf.attribute(model, sf.nn.mse_loss, (x, x[:, :1]), "bf16-standard", by=["role"])
        >>> print(table)
        role                     error
        (whole policy)        1.35e-03
        activation_gradients  1.70e-03
        compute_gradients     1.48e-03
        weight_gradients      1.30e-03
        activations           1.12e-03
        weights               1.08e-03
        compute_weights       8.15e-04
        compute               6.02e-04
        accumulate_gradients  1.51e-08
        reduce                1.39e-08
        accumulate            9.16e-09
    """
    fields = _checked_fields(by)
    chosen, base = as_policy(policy, "attribute"), explicit_policy(as_policy(reference, "attribute"))
    run = new_run(model, loss_fn, batch, seed)
    parts, under_policy = run.parts_and_gradient(chosen)
    checked_modes(base, parts)
    exact = run.gradient(base)
    check_exact(exact)
    probes = Probes(base, parts)
    groups: dict[tuple[str, ...], list[PolicyPart]] = {}
    for part in parts:
        if probes.is_changed(part):
            groups.setdefault(tuple(_field(part, field) for field in fields), []).append(part)
    measured = [
        Cost(**dict.fromkeys(FIELDS, "") | dict(zip(fields, names, strict=True)), error=relative_error(alone, exact))
        for names, group in groups.items()
        for alone in [run.gradient(probes.policy_with_parts(group))]
    ]
    return Attribution(tuple(measured), relative_error(under_policy, exact), fields)


class GradientRun(Protocol):
    """A protocol: gradients of copies of a model on one batch."""

    def parts_and_gradient(self, policy: Policy) -> tuple[list[PolicyPart], NDArray[np.float64]]:
        """Return the parts of a run under `policy`, and the gradients of all parameters in one vector."""

    def gradient(self, policy: Policy) -> NDArray[np.float64]:
        """Return the gradients of all parameters in one vector."""

    def loss_and_gradient(self, policy: Policy) -> tuple[float, NDArray[np.float64]]:
        """Return the loss, and the gradients of all parameters in one vector."""


def new_run(model: Any, loss_fn: Any, batch: Any, seed: int, caller: str = "attribute") -> GradientRun:
    """Create the run of a model of this package or of PyTorch."""
    check_loss_function(loss_fn)
    pair = pair_of_batch(batch)
    if not is_of_torch(model, caller):
        return TensorRun(model, loss_fn, pair, seed)
    from simfloat.analysis.attribution.torch_models import TorchRun

    return TorchRun(model, loss_fn, pair, seed)


class TensorRun:
    """Gradients of copies of a model of this package on one batch."""

    def __init__(self, model: Module, loss_fn: Loss, batch: tuple[Any, Any], seed: int) -> None:
        self.model, self.loss_fn, self.batch, self.seed = model, loss_fn, batch, seed
        self.paths = [path for path, _ in model.named_parameters()]

    def parts_and_gradient(self, policy: Policy) -> tuple[list[PolicyPart], NDArray[np.float64]]:
        """Return the parts of a run under `policy`, and the gradients of all parameters in one vector."""
        results, _, gradient = self._run(policy)
        return policy_parts(results, policy, self.paths), gradient

    def gradient(self, policy: Policy) -> NDArray[np.float64]:
        """Return the gradients of all parameters in one vector."""
        return self._run(policy)[2]

    def loss_and_gradient(self, policy: Policy) -> tuple[float, NDArray[np.float64]]:
        """Return the loss, and the gradients of all parameters in one vector."""
        return self._run(policy)[1:]

    def _run(self, policy: Policy) -> tuple[list[MadeTensor], float, NDArray[np.float64]]:
        model, (x, y) = copy.deepcopy(self.model), self.batch
        model.zero_grad()  # otherwise the new gradients would be added to existing ones
        with simulate(policy, seed=self.seed):
            loss = self.loss_fn(model(x), y)
            results = results_behind_loss(loss, {id(parameter) for parameter in model.parameters()})
            loss.backward()
        gradients = [
            np.zeros(p.size) if p.grad is None else np.asarray(on_cpu(p.grad), np.float64).ravel()
            for p in model.parameters()
        ]
        return results, loss.item(), np.concatenate(gradients)


def results_behind_loss(loss: Any, parameters: set[int]) -> list[MadeTensor]:
    """Return the tensors that operations created on the way to the loss, each after its operands.

    Raises ValueError if the loss is not one value with a gradient, or depends on parameters other than these.
    """
    if not isinstance(loss, Tensor) or loss.size != 1 or loss.node is None:
        raise ValueError(f"loss_fn(model(x), y) must be a Tensor of one number with a gradient, got {loss!r}.")
    results: dict[int, MadeTensor] = {}
    stack: list[tuple[Variable, bool]] = [(loss, False)]
    while stack:
        variable, is_complete = stack.pop()
        if id(variable) in results:
            continue
        if variable.node is None:
            _check_leaf(variable, parameters)
        elif is_complete:
            results[id(variable)] = variable, variable.node
        else:
            stack.append((variable, True))
            stack += [(parent, False) for parent in reversed(variable.node.parents)]
    return list(results.values())


def _check_leaf(leaf: Variable, parameters: set[int]) -> None:
    """Raise ValueError for a parameter that the copy of the model does not have."""
    if leaf.is_weight and id(leaf) not in parameters:
        raise ValueError(
            f"loss_fn uses {leaf.path or 'a parameter'}, which the copy of the model does not have: make it "
            "a part of the model."
        )


def check_exact(gradient: NDArray[np.float64]) -> None:
    """Raise ValueError if the gradient of the reference is zero or not finite: errors are relative to it."""
    if not 0 < _norm(gradient) < np.inf:
        raise ValueError("The gradient under the reference is zero or not finite, and errors are relative to it.")


def relative_error(gradient: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
    """Return the norm of the difference, relative to the norm of the exact gradient."""
    if not np.isfinite(gradient).all():
        return float("inf")
    return _norm(gradient - exact) / _norm(exact)


def _norm(vector: NDArray[np.float64]) -> float:
    """Return the 2-norm; its squares are added in the same order on every computer."""
    return math.sqrt(sum_of_squares(vector))


def _field(part: PolicyPart, field: str) -> str:
    name = getattr(part, field)
    return name or "(model)" if field == "layer" else name


def _checked_fields(by: Sequence[str]) -> tuple[str, ...]:
    fields = list(by) if isinstance(by, list | tuple) else []
    if not fields or any(field not in FIELDS for field in fields) or len(set(fields)) < len(fields):
        raise ValueError(f"by is a list of {', '.join(FIELDS)}; got {by!r}.")
    return tuple(by)
