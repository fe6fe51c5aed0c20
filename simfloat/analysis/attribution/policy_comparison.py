"""Compare the loss and the gradient of one model under many policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from simfloat.analysis.attribution.measure import check_exact, new_run, relative_error
from simfloat.common import Table, table
from simfloat.policy import Policy
from simfloat.policy.policy import as_policy


class PolicyError(NamedTuple):
    """The loss of a model under a policy, and the relative errors of loss and gradient.

    `refused` is the error message if the model cannot run under the policy.
    """

    policy: str
    loss: float
    loss_error: float
    gradient_error: float
    refused: str = ""


@dataclass(frozen=True, repr=False)
class PolicyComparison:
    """The result of `compare`: a row for each policy in the given order.

    It prints as a table; ``comparison["bf16-standard"]`` is a row.

    Parameters:
        rows: a `PolicyError` for each policy.
        reference: the name of the reference policy.
        loss: the loss under the reference.
    """

    rows: tuple[PolicyError, ...]
    reference: str
    loss: float

    def __getitem__(self, policy: str) -> PolicyError:
        for row in self.rows:
            if row.policy == policy:
                return row
        raise ValueError(
            f"{policy!r} was not compared. The compared policies are: {', '.join(row.policy for row in self.rows)}."
        )

    def table(self) -> Table:
        """Return the rows as a table, with the reference first."""
        head = ("policy", "loss", "error of loss", "error of gradient")
        lines = [
            (row.policy, f"{row.loss:.6g}", f"{row.loss_error:.2e}", f"{row.gradient_error:.2e}")
            if not row.refused
            else (f"{row.policy} (refused: {row.refused})", "", "", "")
            for row in self.rows
        ]
        return table([head, (self.reference, f"{self.loss:.6g}", "", ""), *lines], number_columns=3)

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def compare(
    model: Any,
    loss_fn: Callable[[Any, Any], Any],
    batch: tuple[Any, Any],
    policies: Iterable[Policy | str] | Mapping[str, Policy | str],
    reference: Policy | str = "fp64",
    *,
    seed: int = 0,
) -> PolicyComparison:
    """Compare the loss and the gradient of a model on one batch under several policies with a reference.

    The error of a loss is relative to the loss under the reference. The error of a gradient is the 2-norm of its
    difference from the gradient under the reference, for all parameters together, divided by the norm of the latter. It
    is infinite if the gradient is not finite. If the model cannot run under a policy, its row has the reason.

    `simfloat.plots.draw_comparison` draws the result. `simfloat.attribute` measures which part of a policy causes the
    error. One batch shows the effect of rounding on one step. To compare whole trainings over several seeds, use
    `simfloat.studies.compare` with a table of their results.

    Parameters:
        model: a simfloat.nn.Module or a torch.nn.Module. It does not change. Copies of a PyTorch model run in float64,
            which can represent every format, or under "as-written" in the dtypes of the model.
        loss_fn: the loss; ``loss_fn(model(x), y)`` must be one value.
        batch: a pair (x, y).
        policies: a list of policies and names of presets, or a dictionary of them by label.
        reference: the policy that the others are compared with, or its name.
        seed: the seed of the random streams, the same for all runs.

    Returns:
        A `PolicyComparison`, which prints as a table.

    Raises:
        ValueError: if `model`, `batch` or a policy is invalid; if two policies have the same name; if the gradient
            under the reference is zero or not finite.

    Examples:
        >>> model = sf.nn.MLP([2, 4, 1], rng=0)
        >>> x = np.random.default_rng(0).standard_normal((8, 2))
        >>> sf.compare(model, sf.nn.mse_loss, (x, x[:, :1]), ["fp32", "bf16-standard", "fp8-hybrid"])
        policy             loss  error of loss  error of gradient
        fp64           0.547166
        fp32           0.547166       1.79e-07           6.52e-08
        bf16-standard  0.546875       5.32e-04           1.35e-03
        fp8-hybrid     0.550781       6.61e-03           1.00e-02
    """
    named = _policies_by_label(policies)
    run, base = new_run(model, loss_fn, batch, seed, "compare"), as_policy(reference, "compare")
    loss, gradient = run.loss_and_gradient(base)
    check_exact(gradient)
    rows = []
    for label, policy in named.items():
        try:
            policy_loss, slope = run.loss_and_gradient(policy)
        except ValueError as error:
            rows.append(PolicyError(label, math.nan, math.nan, math.nan, str(error)))
        else:
            rows.append(
                PolicyError(label, policy_loss, _difference(policy_loss, loss), relative_error(slope, gradient))
            )
    return PolicyComparison(tuple(rows), base.name or "reference", loss)


def _difference(loss: float, exact: float) -> float:
    """Return the error of a loss, relative to the exact loss unless that is zero."""
    if not math.isfinite(loss):
        return math.inf
    return abs(loss - exact) / abs(exact) if exact else abs(loss)


def _policies_by_label(policies: Any) -> dict[str, Policy]:
    """Return the policies by label. Raises ValueError if the list is empty, or if two have the same name."""
    if isinstance(policies, str | Policy) or not isinstance(policies, Iterable):
        raise ValueError(f"compare takes a list of policies, got {policies!r}; put it in brackets.")
    if isinstance(policies, Mapping):
        return {label: as_policy(policy, "compare") for label, policy in policies.items()}
    policies_by_label: dict[str, Policy] = {}
    for policy in (as_policy(each, "compare") for each in policies):
        label = policy.name or f"policy {len(policies_by_label) + 1}"
        if label in policies_by_label:
            raise ValueError(
                f"Two policies are called {label!r}; pass a dictionary with a different label for each policy."
            )
        policies_by_label[label] = policy
    if not policies_by_label:
        raise ValueError("compare takes a list of policies, got none.")
    return policies_by_label
