"""The loss and the gradient of one model under many policies."""

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
    """The loss of a model under a policy, and the relative errors of loss and gradient; why, if it was `refused`."""

    policy: str
    loss: float
    loss_error: float
    gradient_error: float
    refused: str = ""


@dataclass(frozen=True, repr=False)
class PolicyComparison:
    """What `compare` found: a row for each policy in the order given, beside the `reference` and its loss.

    It prints as a table; ``comparison["bf16-standard"]`` is a row.
    """

    rows: tuple[PolicyError, ...]
    reference: str
    loss: float

    def __getitem__(self, policy: str) -> PolicyError:
        for row in self.rows:
            if row.policy == policy:
                return row
        raise ValueError(f"{policy!r} was not compared. There are: {', '.join(row.policy for row in self.rows)}.")

    def table(self) -> Table:
        """The rows as a table, the reference first."""
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
    """The loss and the gradient of a model on one batch under each of the policies, beside a reference.

    policies is a list of policies and names of presets, or a dictionary of them by labels. The error of a loss is
    relative to the reference's loss; that of a gradient is the 2-norm of its difference, of all parameters together,
    relative to that one's norm, infinite for a gradient that is not finite. A policy that the model cannot run under
    has the reason in its row. All runs draw the same random bits.

    model is a simfloat.nn.Module or a torch.nn.Module; of the latter copies run in float64, which holds every format,
    and under "as-written" in the model's own types. batch is a pair (x, y), of which ``loss_fn(model(x), y)`` is a
    single number. The model stays as it is.
    `simfloat.plots.draw_comparison` draws what was found; `simfloat.attribute` says which part of a policy costs what.
    One batch says what rounding does to one step; whether trainings end better or worse, over seeds, is what
    `simfloat.studies.compare` judges, by a table of their results.

    Raises ValueError for what is no model, batch or policy, for two policies of one name, and for a gradient under the
    reference that is zero or not finite.

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
    """The error of a loss, relative to the exact one where that is not zero."""
    if not math.isfinite(loss):
        return math.inf
    return abs(loss - exact) / abs(exact) if exact else abs(loss)


def _policies_by_label(policies: Any) -> dict[str, Policy]:
    """The policies by their labels. Raises ValueError for none, and for two of one name."""
    if isinstance(policies, str | Policy) or not isinstance(policies, Iterable):
        raise ValueError(f"compare takes a list of policies, got {policies!r}; give it in brackets.")
    if isinstance(policies, Mapping):
        return {label: as_policy(policy, "compare") for label, policy in policies.items()}
    policies_by_label: dict[str, Policy] = {}
    for policy in (as_policy(each, "compare") for each in policies):
        label = policy.name or f"policy {len(policies_by_label) + 1}"
        if label in policies_by_label:
            raise ValueError(
                f"Two policies are called {label!r}; give a dictionary of policies by labels of their own."
            )
        policies_by_label[label] = policy
    if not policies_by_label:
        raise ValueError("compare takes a list of policies, got none.")
    return policies_by_label
