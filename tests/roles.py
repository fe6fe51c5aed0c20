"""Formats of roles: a policy with a different format for each, and a check of every tensor of a step."""

import numpy as np

import simfloat as sf
from simfloat.arithmetic.catalog import CLASS_OF
from simfloat.autodiff import record
from simfloat.simulation.simulation import current
from simfloat.sums.operands import first_outside_format

#: A policy that tells any two roles apart.
EACH_ITS_OWN = sf.Policy(
    compute=sf.BF16,
    compute_gradients=sf.E5M2,
    weights=sf.Format(8, 12),
    activations=sf.FP16,
    activation_gradients=sf.Format(8, 9),
    weight_gradients=sf.Format(8, 11),
    optimizer_state=sf.Format(8, 10),
    accumulate=sf.Format(8, 14),
    accumulate_gradients=sf.Format(8, 13),
    reduce=sf.Format(8, 6),
)


def keep_numbers(monkeypatch):
    """Let the record hold the numbers of all results, which it frees otherwise once no derivative reads them."""
    monkeypatch.setattr(record, "Trace", lambda result: result)


def recorded(root):
    """Every tensor that an operation made on the way to `root`."""
    seen, stack = {}, [root]
    while stack:
        tensor = stack.pop()
        if id(tensor) not in seen and tensor.node is not None:
            seen[id(tensor)] = tensor
            stack += tensor.node.parents
    return list(seen.values())


def backward_in_roles(loss):
    """Check the results so far, go backward from the loss, and check every gradient where it is made."""
    for tensor in recorded(loss):
        _check_result(tensor)
        node = tensor.node
        wrapped = [_checked(node, number) for number in range(len(node.parents))]
        tensor.node = node._replace(derivatives=tuple(wrapped))
    loss.backward()


def _check_result(tensor):
    place, what = tensor.node.place, f"{tensor.node.place.operations} in {tensor.node.place.path!r}"
    before = tensor.node.parents[0].operand_in(current())
    enters = _is_border(tensor.node) and np.shares_memory(tensor.numbers, before.numbers)
    moved = enters or CLASS_OF[place.operation] == "movement"
    if not moved and place.recipe.activations != "widest":
        assert tensor.format == place.recipe.activations, what
    if tensor.format is not None:
        assert first_outside_format(tensor.numbers, tensor.format) is None, what


def _checked(node, number):
    """The derivative to a parent, whose results are then looked at."""
    derivative, path = node.derivatives[number], node.paths[number]
    role = "activation_gradients" if path is None else "weight_gradients"
    recipe = node.place.recipe if path is None else node.place.recipe_of_parameter(path)
    format = getattr(recipe, role)

    def run(u, g):
        if format != "widest":
            assert u.format == format, (node.place.operations, role)
        result = derivative(u, g)
        numbers = getattr(result, "numbers", result)
        assert _is_border(node) or first_outside_format(numbers, u.format) is None, (node.place.operations, role)
        return result

    return run


def _is_border(node):
    """True if values enter a fused composite here, or gradients enter it in the backward pass."""
    return CLASS_OF[node.place.operation] == "composite"
