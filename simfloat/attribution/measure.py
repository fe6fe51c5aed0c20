"""Measuring what each part of a policy does to a gradient."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_cpu
from simfloat.attribution.model_arguments import is_of_torch, pair_of_batch
from simfloat.attribution.probes import Probes, checked_modes, explicit_policy
from simfloat.attribution.result import FIELDS, Attribution, Cost
from simfloat.attribution.roles_used import MadeTensor, PolicyPart, policy_parts
from simfloat.autodiff import Tensor
from simfloat.autodiff.variable import Variable
from simfloat.checks import check_loss_function
from simfloat.nn import Module
from simfloat.optim.float64_sums import sum_of_squares
from simfloat.policy import Policy
from simfloat.policy.policy import as_policy
from simfloat.simulation import simulate

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
    """What each operation, layer and role costs the gradient: it alone under `policy`, the rest under `reference`.

    The error of a gradient is the 2-norm of its difference from the one under the reference, of all parameters
    together, relative to that one's norm; infinite for a gradient that is not finite. Roles are those of a policy: how
    operands, results, gradients, sums and stored parameters are rounded. Results of ``widest`` operations count in the
    formats that they have under the policy; fused composites are one operation; operands and sums of a matrix unit,
    which takes its own formats only, and of fused sums are measured together.

    model is a simfloat.nn.Module or a torch.nn.Module; of the latter copies run in float64, which holds every format,
    and PyTorch draws the same numbers in all of them. batch is a pair (x, y), of which ``loss_fn(model(x), y)`` is a
    single number. `by` names the fields that tell parts apart, each of which costs a forward and a backward pass:
    ``by=["operation"]`` takes each operation in all layers at once. The model stays as it is.

    Raises ValueError for a reference with overrides, for fields that are none, for a loss that holds parameters of its
    own or no gradient, and for a policy whose modes the reference cannot have.

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
    """Gradients of a model's copies on one batch."""

    def parts_and_gradient(self, policy: Policy) -> tuple[list[PolicyPart], NDArray[np.float64]]:
        """The parts of a run under `policy`, and the gradients of all parameters in one vector."""

    def gradient(self, policy: Policy) -> NDArray[np.float64]:
        """Return the gradients of all parameters in one vector."""

    def loss_and_gradient(self, policy: Policy) -> tuple[float, NDArray[np.float64]]:
        """The loss, and the gradients of all parameters in one vector."""


def new_run(model: Any, loss_fn: Any, batch: Any, seed: int, caller: str = "attribute") -> GradientRun:
    """The run of a model of this package or of PyTorch."""
    check_loss_function(loss_fn)
    pair = pair_of_batch(batch)
    if not is_of_torch(model, caller):
        return TensorRun(model, loss_fn, pair, seed)
    from simfloat.attribution.of_torch import TorchRun

    return TorchRun(model, loss_fn, pair, seed)


class TensorRun:
    """Gradients of copies of a model of this package on one batch."""

    def __init__(self, model: Module, loss_fn: Loss, batch: tuple[Any, Any], seed: int) -> None:
        self.model, self.loss_fn, self.batch, self.seed = model, loss_fn, batch, seed
        self.paths = [path for path, _ in model.named_parameters()]

    def parts_and_gradient(self, policy: Policy) -> tuple[list[PolicyPart], NDArray[np.float64]]:
        """The parts of a run under `policy`, and the gradients of all parameters in one vector."""
        results, _, gradient = self._run(policy)
        return policy_parts(results, policy, self.paths), gradient

    def gradient(self, policy: Policy) -> NDArray[np.float64]:
        """Return the gradients of all parameters in one vector."""
        return self._run(policy)[2]

    def loss_and_gradient(self, policy: Policy) -> tuple[float, NDArray[np.float64]]:
        """The loss, and the gradients of all parameters in one vector."""
        return self._run(policy)[1:]

    def _run(self, policy: Policy) -> tuple[list[MadeTensor], float, NDArray[np.float64]]:
        model, (x, y) = copy.deepcopy(self.model), self.batch
        model.zero_grad()  # gradients of before would be added to
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
    """The tensors that operations made on the way to the loss, each after those that it was made of.

    Raises ValueError for a loss that is no number with a gradient, or depends on other parameters than these.
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
            f"loss_fn uses {leaf.path or 'a parameter'}, which is none of the model's copy: put what has parameters "
            "into the model."
        )


def check_exact(gradient: NDArray[np.float64]) -> None:
    """Raise ValueError for the gradient of a reference to which no error is relative."""
    if not 0 < _norm(gradient) < np.inf:
        raise ValueError("The gradient under the reference is zero or not finite: no error is relative to it.")


def relative_error(gradient: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
    """The norm of the difference, relative to the exact gradient's."""
    if not np.isfinite(gradient).all():
        return float("inf")
    return _norm(gradient - exact) / _norm(exact)


def _norm(vector: NDArray[np.float64]) -> float:
    """The 2-norm, its squares added in one order on every machine."""
    return math.sqrt(sum_of_squares(vector))


def _field(part: PolicyPart, field: str) -> str:
    name = getattr(part, field)
    return name or "(model)" if field == "layer" else name


def _checked_fields(by: Sequence[str]) -> tuple[str, ...]:
    fields = list(by) if isinstance(by, list | tuple) else []
    if not fields or any(field not in FIELDS for field in fields) or len(set(fields)) < len(fields):
        raise ValueError(f"by is a list of {', '.join(FIELDS)}; got {by!r}.")
    return tuple(by)
