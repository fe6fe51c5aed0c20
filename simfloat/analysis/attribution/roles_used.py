"""Find the roles of a policy that a gradient used, from the record of a run.

The module also checks the models and batches that analyses receive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simfloat.arithmetic.catalog import kind_of
from simfloat.autodiff.variable import Node, Variable
from simfloat.common import is_torch_model
from simfloat.formats import FP32, Format, nearest_even
from simfloat.nn import Module
from simfloat.policy import Policy, Recipe
from simfloat.policy.overrides import roles_of
from simfloat.policy.roles import COMPOSITE, CONTRACTION, MOVEMENT, POINTWISE, RESULTS, WIDEST
from simfloat.simulation.place import Place

#: A tensor, and the operation that created it.
MadeTensor = tuple[Variable, Node]

#: The roles that a matrix unit or a fused sum ties together, because it accepts only certain formats of operands.
UNIT_ROLES = ("compute", "compute_gradients", "compute_weights", "accumulate", "accumulate_gradients", "rotation")

#: The operation and the role of the storage of parameters.
STORED, WEIGHTS = "(parameter)", "weights"


class PolicyPart(NamedTuple):
    """Roles of an operation in a layer, or of a parameter, that are measured together."""

    operation: str
    path: str  # of the layer, or of the parameter that has the role
    layer: str
    role: str  # the name in the table
    values: Mapping[str, Any]  # of the roles, under the policy


def policy_parts(made_tensors: list[MadeTensor], policy: Policy, parameters: Iterable[str]) -> list[PolicyPart]:
    """Return the parts of the run that created these tensors, for a model with parameters at these paths."""
    results = (part for variable, node in made_tensors for part in _parts_of_result(variable, node, policy))
    return merge_parts(results, {path: policy.recipe(path, "update").weights for path in parameters})


def merge_parts(results: Iterable[PolicyPart], stored: Mapping[str, Format]) -> list[PolicyPart]:
    """Return the parts of operations, each once, and the parts of the storage of parameters, by their formats."""
    parts: dict[tuple[str, str, str], PolicyPart] = {}
    for part in results:
        key = part.operation, part.path, part.role
        parts[key] = _narrower(parts.get(key), part)
    for path, format in stored.items():
        parts[STORED, path, WEIGHTS] = PolicyPart(STORED, path, path.rpartition(".")[0], WEIGHTS, {WEIGHTS: format})
    return list(parts.values())


def _parts_of_result(variable: Variable, node: Node, policy: Policy) -> Iterator[PolicyPart]:
    weights = [path for path in node.paths if path is not None]
    yield from place_parts(node.place, weights, _roles(variable, node), policy)
    for step in node.inside:
        yield from place_parts(step, (), ((step.path, {role: value}) for _, role, value in step.roles_used()), policy)


def place_parts(
    place: Place, weights: Sequence[str], roles: Iterable[tuple[str, Mapping[str, Any]]], policy: Policy
) -> Iterator[PolicyPart]:
    """Yield the parts of an operation; `roles` are the paths and roles of the place and of its parameters."""
    if any(policy.recipe(place.path, *place.operations[:n]).fused for n in range(1, len(place.operations))):
        return  # inside a composite that is rounded once: it is one operation
    unit = _unit_roles(place, weights)
    if unit:
        yield _policy_part(place, place.path, "operands and sums", unit)
    for path, values in roles:
        for role, value in values.items():
            if role not in unit:
                yield _policy_part(place, path, role, {role: value})


def _unit_roles(place: Place, weights: Sequence[str]) -> dict[str, Any]:
    """Return the roles of a contraction that a matrix unit or a fused sum ties together; otherwise none."""
    recipe = place.recipe
    if not place.is_contraction or not any(
        sums.needs_narrow_operands for sums in (recipe.accumulate, recipe.accumulate_gradients)
    ):
        return {}
    weight_role = {"compute_weights": place.recipe_of_parameter(weights[0]).compute_weights} if weights else {}
    return {role: getattr(recipe, role) for role in UNIT_ROLES} | weight_role


def _policy_part(place: Place, path: str, label: str, values: dict[str, Any]) -> PolicyPart:
    """Create a part, with the mode of results, the rotation of operands, and `fused` if its roles need them."""
    recipe = place.recipe
    if recipe.rotation is not None and label in ("compute", "compute_gradients"):
        values["rotation"] = recipe.rotation
    if recipe.rounding != nearest_even and label not in UNIT_ROLES:
        values["rounding"] = recipe.rounding
    # In a narrow dtype of the program, a composite is one operation.
    if (recipe.fused or place.type.bits < FP32.bits) and "fused" in roles_of(place.operation):
        values["fused"] = True
    return PolicyPart(place.operation, path, place.path, label, values)


def _roles(variable: Variable, node: Node) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield paths, of the layer and of parameters, with the roles used there and their values."""
    place, kind = node.place, kind_of(node.place.operation)
    roles: dict[str, Any] = {}
    if kind == CONTRACTION:
        roles |= {
            role: getattr(place.recipe, role) for role in UNIT_ROLES if role not in ("compute_weights", "rotation")
        }
    if kind != MOVEMENT and not (kind == COMPOSITE and _is_entrance(node)):
        roles["activations"] = variable.format
    if kind not in (CONTRACTION, MOVEMENT) and (kind != POINTWISE or _is_broadcast(variable, node)):
        roles["reduce"] = place.recipe.reduce
    formats = node.formats or (None,) * len(node.parents)
    for parent, path, format in zip(node.parents, node.paths, formats, strict=True):
        if path is None and parent.requires_grad:
            gradient = place.recipe.activation_gradients
            roles["activation_gradients"] = format if gradient == WIDEST else gradient
        elif path is not None:
            yield (
                path_in_layer(place.path, path),
                _weight_roles(place.recipe_of_parameter(path), kind, format, parent.requires_grad),
            )
    yield place.path, roles


def _weight_roles(recipe: Recipe, kind: str | None, format: Format | None, has_gradient: bool) -> dict[str, Any]:
    roles: dict[str, Any] = {"compute_weights": recipe.compute_weights} if kind == CONTRACTION else {}
    if has_gradient:
        roles["weight_gradients"] = format if recipe.weight_gradients == WIDEST else recipe.weight_gradients
    return roles


def _is_entrance(node: Node) -> bool:
    """True if the node rounds nothing: values enter a composite, or are the results of its steps."""
    if node.inside:
        return not node.place.recipe.fused
    operations, inside = node.place.operations, node.parents[0].node
    return (
        inside is None
        or len(inside.place.operations) <= len(operations)
        or inside.place.operations[: len(operations)] != operations
    )


def _is_broadcast(variable: Variable, node: Node) -> bool:
    """True if gradients are summed in the backward pass."""
    return any(parent.requires_grad and parent.shape != variable.shape for parent in node.parents)


def path_in_layer(layer: str, parameter: str) -> str:
    """Return the path of a parameter below the layer, as a place names it."""
    return parameter if not layer or parameter.startswith(f"{layer}.") else f"{layer}.{parameter.rpartition('.')[2]}"


def _narrower(first: PolicyPart | None, second: PolicyPart) -> PolicyPart:
    """Return the narrower of two uses at one place, as in an operation on tensors of two formats."""
    if first is None:
        return second
    role = second.role if second.role in RESULTS else None
    if role and first.values[role].precision <= second.values[role].precision:
        return first
    return second


def is_of_torch(model: Any, caller: str) -> bool:
    """True for a model of PyTorch, False for a model of this package.

    Raises ValueError that names the caller if it is neither.
    """
    if isinstance(model, Module):
        return False
    if is_torch_model(model):
        return True
    raise ValueError(f"{caller} takes a simfloat.nn.Module or a torch.nn.Module, got a {type(model).__name__}.")


def pair_of_batch(batch: Any) -> tuple[Any, Any]:
    """Return the pair (x, y) of a batch; raise ValueError if the batch is not a pair."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"batch is a pair (x, y), got a {type(batch).__name__}.")
    return batch[0], batch[1]
