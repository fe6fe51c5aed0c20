"""Compare the traces of a program on all machines, bit for bit."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

import simfloat as sf
from simfloat.arithmetic import threads
from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.scaling import Delayed
from simfloat.policy import Policy
from simfloat.policy.policy import draws_bits, takes_formats
from simfloat.policy.roles import MOVEMENT, RESULTS
from simfloat.simulation.arithmetic import WorkMeter
from simfloat.sums import tiles
from tests.bits import equal_bits
from tests.properties.arithmetic import NOW, values_of
from tests.properties.machines import Tensors
from tests.properties.programs import LEAVES, SLOTS
from tests.properties.reference import Definition, is_defined

try:
    from tests.properties.torch_machine import Modules
except ModuleNotFoundError:  # without torch its machine is left out
    Modules = None


#: Names that the reference has for other results than a recorder.
NOT_COUNTED = ("mean", "divide", "cast_input", "cast_weight")


class Partial(sf.Recorder):
    """A recorder that wants the counts of some paths and phases alone."""

    def wants(self, path, phase):
        return path.startswith("a") and phase != "forward"


class Own(sf.Recorder):
    """A program's own observer, which receives the events of each operation."""


@contextmanager
def two_threads():
    """A block in which little work is shared by two threads, too."""
    before = sf.get_threads()
    sf.set_threads(2)
    try:
        with patch.object(threads, "LEAST_WORK", 4), patch.object(tiles, "LEAST_WORK", 4):
            yield
    finally:
        sf.set_threads(before)


def first_difference(got, want):
    """The first entry that differs in two traces, as text; None if there is none."""
    for (what, value), (name, other) in zip(got, want, strict=False):
        if what != name:
            return f"{what} is not {name}"
        if not is_same(value, other):
            return f"{what}:\n{value}\nis not\n{other}"
    if len(got) != len(want):
        longer = max(got, want, key=len)
        return f"{len(got)} entries are not {len(want)}: {longer[min(len(got), len(want))]}"
    return None


def is_same(a, b):
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and bool(equal_bits(a, b).all())
    return a is b or (type(a) is type(b) and a == b)


def disagreement(program):
    """The first two machines that differ, and where; None if all agree."""
    want = Tensors(program).run()
    observed, partly = sf.Recorder(), Partial()
    machines = {
        "observed": lambda: Tensors(program, observed),
        "partly observed": lambda: Tensors(program, partly),
        "metered": lambda: Tensors(program, meter=WorkMeter),
    }
    for name, make in machines.items():
        if (what := first_difference(make().run(), want)) is not None:
            return f"{name}: {what}"
    counts = entries(observed)
    if any(action[0] == "interrupted" for action in program.actions):
        counts = None  # Ctrl-C came earlier or later
    elif entries(partly) != {key: value for key, value in counts.items() if partly.wants(key.path, key.phase)}:
        return f"partly observed: counts\n{partly.table()}\n{observed.table()}"
    again = sf.Recorder()
    with two_threads():
        if (what := first_difference(Tensors(program, again).run(), want)) is not None:
            return f"two threads: {what}"
    if counts is not None and entries(again) != counts:
        return f"two threads: counts\n{again.diff(observed)}"
    if is_defined(program) and (what := difference_from_reference(program, want)) is not None:
        return f"reference: {what}"
    if (
        counts is not None
        and is_defined(program)
        and not names_by_owner(program)
        and (what := miscounted(want, counts))
    ):
        return f"reference: {what}"
    if Modules is not None and is_for_torch(program, want):
        return torch_disagreement(program, want)
    return None


def difference_from_reference(program, want):
    """Except in what blocks refuse at their ends, which the reference does not know."""
    if any(what.endswith(" refused") for what, _ in want):
        return None
    want = [(what, value) for what, value in want if not what.endswith(" leave")]
    refused = {int(what.split()[0]) for what, _ in want if what.endswith(" switch")}
    return first_difference(Definition(program, refused).run(), list(map(with_calls, want)))


def miscounted(trace, counts):
    """Places of the forward pass, and parameters updated, with other numbers of results than the reference has."""
    if any(what.endswith(" refused") for what, _ in trace):
        return None
    heard = {(key.path, key.operation, key.phase): events[0] for key, events in counts.items()}
    both = [
        {key: count for key, count in one.items() if is_counted(*key) and not key[0].endswith((".update", "_buffer"))}
        for one in (heard, NOW.counts)
    ]
    return "" if both[0] == both[1] else f"counts\n{sorted(both[0].items() ^ both[1].items())}"


def names_by_owner(program):
    """True if a simulation may update a shared module before it runs: the owner of a parameter then names it."""
    kinds = [action[0] for action in program.actions]
    return "share" in kinds and not {"resume", "nested"}.isdisjoint(kinds)


def is_counted(path, operation, phase):
    """Whether a recorder hears these results under this name alone: the quotient of a mean is a "divide" to it."""
    return operation == "update" or (phase == "forward" and operation not in NOT_COUNTED)


def with_calls(entry):
    """An entry of a trace with the calls of all streams by place, if it is a state."""
    what, value = entry
    if " state " not in what:
        return entry
    keys = "path", "phase", "operation", "operand"
    return what, {tuple(one[key] for key in keys): one["calls"] for one in value["streams"]}


def entries(recorder):
    return {key: events.tolist() for key, events in recorder.entries()}


def is_for_torch(program, trace):
    """True if both front ends run the program in the same way (docs/pytorch_semantics.md)."""
    if not program.is_chain or program.optimizer[0] == "AdamW":
        return False
    bodies = [part for action in program.actions for part in action if isinstance(part, tuple)]
    policies = [part for action in (program.policies, *program.actions) for part in action if isinstance(part, Policy)]
    names = {name for body in bodies for name, _ in body} | {part for action in program.actions for part in action[3:]}
    values = [value for policy in policies for value in values_of(policy)]
    return (
        all(bodies)
        and not any(what.endswith(("refused", "switch")) for what, _ in trace)
        and not any(map(has_gradients_of_its_own, policies))
        and (
            ("mean" not in names and all(map(adds_no_gradients, bodies)))  # the loss x * x adds gradients, too
            or not any(draws_bits(one) or takes_formats(one) for one in policies)
        )
        and ("matmul" not in names or not any(isinstance(as_cast_scale(value), Delayed) for value in values))
        and ("cross_entropy" not in names or True not in values)
        and ("abs" not in names or not any(map(has_nan, dict(trace).values())))  # its gradient at NaN differs
    )


def has_nan(value):
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and bool(np.isnan(value).any())


def as_cast_scale(value):
    return value.scale if isinstance(value, Cast) else None


def has_gradients_of_its_own(policy):
    """True if gradients change their format: PyTorch's additions and transpositions pass them on unchanged."""
    roles = {role for override in policy.overrides for role, _ in override.roles}
    moves = any(MOVEMENT in override.operations for override in policy.overrides)  # compute changes gradients, too
    return not takes_formats(policy) and (moves or not roles.isdisjoint(RESULTS))


def adds_no_gradients(body):
    """True if every value and layer is used once: PyTorch adds two gradients at other places."""
    if any(name in ("centre", "share", "divide") for name, _ in body):
        return False
    used = [LEAVES - 1, *(place for _, places in body for place in places[1:])]
    used += [name for name, _ in body if name in SLOTS or name == "scale"]
    return len(set(used)) == len(used)


def torch_disagreement(program, want):
    """The difference of PyTorch's machine, except in streams, which are those of fewer roundings, and blocks' ends."""
    want, observed, own = without_streams(want), sf.Recorder(), Own()
    for name, observer in {"torch": None, "observed torch": observed, "torch by single operations": own}.items():
        if (what := first_difference(without_streams(Modules(program, observer).run()), want)) is not None:
            return f"{name}: {what}"
    if not any(action[0] == "interrupted" for action in program.actions) and entries(observed) != entries(own):
        return f"observed torch: counts\n{observed.diff(own)}"
    return None


def without_streams(trace):
    return [(what, value) for what, value in trace if " state " not in what and not what.endswith(" leave")]
