"""What would happen to a model under a policy: a dry run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch

from simfloat.policy import Policy
from simfloat.policy.policy import as_policy
from simfloat.policy.roles import UPDATE
from simfloat.table import Table
from simfloat.table import table as aligned
from simfloat.torch.module_paths import tensors_in
from simfloat.torch.simulated_model import Run
from simfloat.torch.tensor_arguments import call_model

#: What PyTorch says of an operation that it has no derivative of, or of one of its operands.
# PyTorch raises a RuntimeError like any other: its text is the only sign, and has the operation's name with or without
# "aten::".
WITHOUT_DERIVATIVE = re.compile(r"derivative for '?(?:aten::)?(\w+)[^']*'? is not implemented")

#: The layer of what runs in none.
OUTSIDE = "(outside)"

#: The roles that are shown.
SHOWN = ("compute", "compute_gradients", "weights", "activations", "gradients", "accumulate", "reduce")


def explain(model: torch.nn.Module, sample: Any, policy: Policy | str) -> Table:
    """The table of what a forward and a backward pass of `model(sample)` do: where, by what, and in which formats.

    sample is what the model takes, or a tuple or dictionary of several arguments. The backward pass starts from the
    sum of the results. The last column is what a policy calls an operation, behind the composites around it: a product
    with a parameter is `linear`, and the addition of its bias `add`. An operation that would be refused is listed as
    such, and then computed by PyTorch itself; one of which PyTorch has no derivative is listed as that, and ends the
    backward pass. It is a copy of the model that runs, so that the model stays as it is.

    Raises ValueError for an unknown policy, a model that is none or cannot be called with the sample, and parameters
    that cannot hold the policy.
    """
    run = Run(deepcopy(model), as_policy(policy, "simfloat.torch.explain"), 0, None)
    shown = run.show()
    lacking: re.Match[str] | None = None
    with run:
        if isinstance(sample, Mapping):
            results = call_model(run.model, **sample)
        else:
            results = call_model(run.model, *sample) if isinstance(sample, tuple) else call_model(run.model, sample)
        differentiable = [x for x in tensors_in(results) if x.requires_grad]
        try:
            torch.autograd.backward([x.sum() for x in differentiable])
        except RuntimeError as error:
            lacking = WITHOUT_DERIVATIVE.search(str(error))
            if lacking is None:
                raise
    rows: list[tuple[str, ...]] = [("layer", "operation", "carried out by", *SHOWN, "to a policy")]
    for name, place in shown:
        stored = place.active_policy.policy.recipe(place.path, UPDATE).weights
        cells = [str(stored if role == "weights" else getattr(place.recipe, role)) for role in SHOWN]
        rows.append((place.path or OUTSIDE, name, "rule", *cells, " ".join(place.operations)))
    for func, how, path in run.met:
        if how == "refused":
            rows.append((path or OUTSIDE, str(func), how, *["-"] * len(SHOWN), "-"))
    if lacking is not None:
        name = lacking.group(1)
        where = next((path for func, _, path in run.met if _base_name(func) == name), "")
        rows.append((where or OUTSIDE, f"aten.{name}", "no derivative", *["-"] * len(SHOWN), "-"))
    return aligned(rows)


def _base_name(func: Any) -> str:
    """The name of an operation without its library and overload."""
    return str(func.overloadpacket.__name__) if hasattr(func, "overloadpacket") else ""
