"""Random programs as data: trainings of a small model, with actions between steps that may leave stale state.

A program is a list of actions. An action is a tuple of a name, which is a method of `machines.Machine`, and its
arguments. A forward pass is a list of operations. An operation is a name in `OPERATIONS`, with the numbers of its
operands among the earlier values. All values have four columns, so that an action or an operation can be left out.
"""

from dataclasses import dataclass, replace
from typing import Any

from simfloat.policy import Policy
from simfloat.policy.roles import ROLES
from tests.properties.policies import one_of, random_generator, random_policy

#: The slots of the model that hold layers: three linear layers, a perceptron, and a layer normalization.
SLOTS = ("a", "b", "c", "d", "e")

#: By name, functions of a machine and of values (rows, 4).
OPERATIONS = {
    **{slot: lambda m, x, slot=slot: getattr(m.model, slot)(x) for slot in SLOTS},
    "scale": lambda m, x: x * m.model.scale,
    "add": lambda m, x, y: x + y,
    "subtract": lambda m, x, y: x - y,
    "multiply": lambda m, x, y: x * y,
    "divide": lambda m, x, y: x / (y * y + 1.0),
    "negative": lambda m, x: -x,
    "abs": lambda m, x: x.abs(),
    "relu": lambda m, x: x.relu(),
    "tanh": lambda m, x: x.tanh(),
    "sigmoid": lambda m, x: x.sigmoid(),
    "exp": lambda m, x: (x * -0.25).exp(),
    "times": lambda m, x: x * 0.3,
    "shift": lambda m, x: 1.0 - x,
    "matmul": lambda m, x, y, z: (x @ y.T) @ z,
    "softmax": lambda m, x: x.softmax(-1),
    "centre": lambda m, x: x - x.mean(1, True),
    "share": lambda m, x: x - x.sum(0, True) * 0.125,
    "halves": lambda m, x, y: m.concatenate([x[:, 2:], y[:, :2]], 1),
    "rows": lambda m, x, y: m.concatenate([y[1:], x[:1]], 0),
    "transposed": lambda m, x: (x.T + 0.5).T,
    "reshaped": lambda m, x: x.reshape(2, -1).relu().reshape(-1, 4),
    "interrupt": lambda m: m.interrupt(),
}
ARITY = {name: function.__code__.co_argcount - 1 - (name in SLOTS) for name, function in OPERATIONS.items()}
LOSSES = {
    "mse": lambda m, x: m.mse_loss(x, m.target(x)),
    "cross_entropy": lambda m, x: m.cross_entropy(x, m.labels(x)),
    "mean": lambda m, x: (x * x).mean(),
    "sum": lambda m, x: x.sum(),
}
OPTIMIZERS = (
    ("SGD", {"lr": 0.25}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.5, "momentum": 0.5, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.3, "weight_decay": 0.125}),
    ("RMSprop", {"lr": 0.01}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.1}),
)

#: What PyTorch models do between steps alone.
BETWEEN_STEPS = {"switch", "copy", "use"}

#: The leaves of a forward pass, which are the first values.
LEAVES = 3


@dataclass(frozen=True)
class Program:
    """The seed of all numbers, the policies of two simulations of one model, its optimizer, and actions.

    In a chain, every operation reads the latest value, and otherwise leaves; then all programs have one order of
    their backward passes.
    """

    seed: int
    policies: tuple[Policy, Policy]
    optimizer: tuple[str, dict[str, float]]
    actions: tuple[tuple[Any, ...], ...]
    is_chain: bool

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {'chain, ' if self.is_chain else ''}{self.optimizer}"]
        lines += [f"policy {number}: {policy!r}" for number, policy in enumerate(self.policies)]
        return "\n".join([*lines, *map(repr, self.actions)])


def random_body(rng, is_chain, interrupts=True):
    """The operations of a forward pass."""
    names, body = list(OPERATIONS)[:-1], []
    for _ in range(1 + int(rng.integers(7))):
        name = one_of(rng, SLOTS) if rng.integers(3) == 0 else one_of(rng, names)
        last = LEAVES + len(body) - 1
        first = -1 if is_chain or rng.integers(2) else int(rng.integers(last + 1))
        others = rng.integers(LEAVES if is_chain else last + 1, size=ARITY[name] - 1).tolist()
        body.append((name, (first, *others)))
    if interrupts and rng.integers(12) == 0:
        body.insert(int(rng.integers(len(body) + 1)), ("interrupt", ()))
    return tuple(body)


def random_event(rng, is_chain):
    """The actions between the passes of a training."""
    slots = [one_of(rng, SLOTS), one_of(rng, SLOTS)]
    body = random_body(rng, is_chain, interrupts=False)
    events = [
        ("switch", random_policy(rng)),
        ("switch", random_policy(rng)),
        ("use", int(rng.integers(2))),
        ("use", int(rng.integers(2))),
        ("swap", *slots),
        ("share", *slots),
        ("tie", *slots),
        ("nest", slots[0]),
        ("copy", one_of(rng, ("deepcopy", "pickle"))),
        ("write", slots[0]),
        ("aside", body),
        ("without_gradients", body),
        ("nested", random_policy(rng), body, one_of(rng, list(LOSSES))),
        ("resume",),
        ("reopen",),
        ("interrupted", int(rng.integers(4000)), body, one_of(rng, list(LOSSES))),
    ]
    return one_of(rng, events)


def random_program(seed):
    """The program of a seed."""
    rng = random_generator(seed)
    is_chain = bool(rng.integers(2))
    policies, optimizer = (random_policy(rng), random_policy(rng)), one_of(rng, OPTIMIZERS)
    body, loss, actions = random_body(rng, is_chain), one_of(rng, list(LOSSES)), []
    for _ in range(2 + int(rng.integers(3))):
        if rng.integers(2):
            body, loss = random_body(rng, is_chain), one_of(rng, list(LOSSES))
        passes = [("zero_grad",), ("forward", int(rng.integers(3)) * 2 + 2, body, loss), ("backward",), ("update",)]
        for action in passes:
            if rng.integers(5) == 0:
                event = random_event(rng, is_chain)
                if not is_chain or action[0] == "zero_grad" or event[0] not in BETWEEN_STEPS:
                    actions.append(event)
            actions.append(action)
    return Program(seed, policies, optimizer, tuple(actions), is_chain)


def smaller_programs(program):
    """Programs without an action, an operation, or an override, or with a plain policy."""
    for number, action in enumerate(program.actions):
        before, after = program.actions[:number], program.actions[number + 1 :]
        yield replace(program, actions=before + after)
        for place, part in enumerate(action):
            for one in smaller_parts(part):
                changed = (*action[:place], one, *action[place + 1 :])
                yield replace(program, actions=(*before, changed, *after))
    for number in range(2):
        for one in smaller_parts(program.policies[number]):
            policies = (*program.policies[:number], one, *program.policies[number + 1 :])
            yield replace(program, policies=policies)


def smaller_parts(part):
    """Bodies without an operation, and policies without an override or with a role at its default."""
    if isinstance(part, tuple):
        yield from (part[:place] + part[place + 1 :] for place in range(len(part)))
    elif isinstance(part, Policy):
        overrides = part.overrides
        yield from (replace(part, overrides=overrides[:i] + overrides[i + 1 :]) for i in range(len(overrides)))
        for role, _ in part._changed_roles():
            if role != "compute":
                try:
                    yield replace(part, **{role: ROLES[role].standard}, name=None, source=None)
                except ValueError:
                    continue


def shrunk(program, fails, tries=400):
    """A program from which nothing can be left out without `fails` being False for it, or nearly so."""
    for one in smaller_programs(program):
        tries -= 1
        if tries < 0:
            return program
        if fails(one):
            return shrunk(one, fails, tries)
    return program
