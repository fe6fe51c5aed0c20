"""What would happen to a model under a policy: a dry run."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch

from simfloat.policy import Policy
from simfloat.policy.presets import as_policy
from simfloat.table import Table
from simfloat.table import table as aligned
from simfloat.torch.handlers import Ruled, floating_in
from simfloat.torch.rules.search import handler_of
from simfloat.torch.run import Run

#: The roles that are shown.
SHOWN = ("compute", "compute_gradients", "weights", "activations", "gradients", "accumulate", "reduce")


def explain(model: torch.nn.Module, sample: Any, policy: Policy | str) -> Table:
    """The table of what a forward and a backward pass of `model(sample)` do: where, by what, and in which formats.

    sample is what the model takes, or a tuple of several arguments. The backward pass starts from the sum of the
    results. Roles are those of the operations that round; an operation that would be refused is listed as such, and
    then computed by PyTorch itself. It is a copy of the model that runs, so that the model stays as it is.

    Raises ValueError for an unknown policy, a model that is none, and parameters that cannot hold the policy.
    """
    run = Run(deepcopy(model), as_policy(policy, "simfloat.torch.explain"), 0, None)
    run.dry = True
    with run:
        results = run.model(*sample) if isinstance(sample, tuple) else run.model(sample)
        found = [x for x in floating_in((results,)) if x.requires_grad]
        torch.autograd.backward([x.sum() for x in found])
    rows: list[tuple[str, ...]] = [("layer", "operation", "carried out by", *SHOWN)]
    for func, how, path in run.met:
        handler = handler_of(func)
        if isinstance(handler, Ruled):
            recipe = run.policy.recipe(path, handler.operation)
            cells = [str(getattr(recipe, role)) for role in SHOWN]
        elif how == "refused":
            cells = ["-"] * len(SHOWN)
        else:
            continue
        rows.append((path or "(outside)", str(func), how, *cells))
    return aligned(rows)
