"""Machines that run programs: with tensors of this package, and with PyTorch.

A machine stores a trace: every computed value, with the number of the action and a name.
"""

import copy
import linecache
import pickle
import signal
import sys
from contextlib import contextmanager

import numpy as np

import simfloat as sf
from tests.properties.policies import random_generator
from tests.properties.programs import LEAVES, LOSSES, OPERATIONS


class Machine:
    """The actions of a program, for what a subclass computes with."""

    def __init__(self, program):
        self.program, self.trace, self.number = program, [], 0
        self.loss, self.leaves, self.current = None, [], 0
        self.was_interrupted = False  # then the paths that overrides could match depend on when Ctrl-C came

    def run(self):
        """Carry out the program, up to what is refused, and return the trace."""
        self.model = self.new_model()
        self.load(self.model)
        self.optimizer = self.new_optimizer(*self.program.optimizer)
        self.simulations = [
            self.simulation(policy, self.program.seed + number) for number, policy in enumerate(self.program.policies)
        ]
        self.enter()
        try:
            for number, (name, *arguments) in enumerate(self.program.actions):
                self.number = number
                getattr(self, name)(*arguments)
        except ValueError as error:
            self.refuse(error)
        else:
            self.number += 1
            self.leave()
            self.note_states()
        return self.trace

    def note(self, what, value):
        """Add an array, or a text, to the trace."""
        self.trace.append((f"{self.number} {what}", value))

    def refuse(self, error):
        """Note what is refused, and leave the block."""
        self.note("refused", str(error))
        self.block.__exit__(ValueError, error, None)

    def note_states(self):
        """Note the numbers of calls of all streams, and the states of delayed scalings."""
        for number, simulation in enumerate(self.simulations):
            self.note(f"state {number}", self.state_of(simulation))

    def load(self, model):
        """Give all parameters their first values."""
        rng = random_generator(self.program.seed, 1)
        for _, parameter in model.named_parameters():
            numbers = rng.standard_normal(tuple(parameter.shape)) * 0.5
            self.write_parameter(parameter, numbers.astype(np.float32))

    def leaf_numbers(self, rows):
        """The leaves of a forward pass."""
        rng = random_generator(self.program.seed, 2, self.number)
        return [rng.standard_normal((rows, 4)).astype(np.float32) for _ in range(LEAVES)]

    def target(self, x):
        """Numbers for a loss of values."""
        rng = random_generator(self.program.seed, 3, self.number)
        return self.data(rng.standard_normal(tuple(x.shape)).astype(np.float32))

    def labels(self, x):
        """Classes for a loss."""
        return self.classes(random_generator(self.program.seed, 4, self.number).integers(0, 4, int(x.shape[0])))

    # Actions.

    def zero_grad(self):
        self.optimizer.zero_grad()

    def forward(self, rows, body, loss):
        self.loss, self.leaves = None, [self.leaf(x) for x in self.leaf_numbers(rows)]
        try:
            self.loss = self.passed(body, loss)
        except KeyboardInterrupt:
            self.note("interrupted", "")

    def passed(self, body, loss=None, what=""):
        """The loss of a forward pass, whose values are noted."""
        y = self.model(lambda: self.values_of(body, what)[-1])
        if loss is None:
            return None
        result = LOSSES[loss](self, y)
        self.note(f"{what}{loss}", self.numbers(result))
        return result

    def values_of(self, body, what):
        values = list(self.leaves)
        for name, places in body:
            operands = [values[place % len(values) if place >= 0 else place] for place in places]
            values.append(OPERATIONS[name](self, *operands))
            self.note(f"{what}{len(values)} {name}", self.numbers(values[-1]))
        return values

    def interrupt(self):
        raise KeyboardInterrupt

    def backward(self, what=""):
        if self.loss is None:
            return
        self.loss.backward()
        self.loss = None
        for number, leaf in enumerate(self.leaves):
            self.note(f"{what}gradient of leaf {number}", self.gradient(leaf))
        self.note_gradients(what)

    def note_gradients(self, what=""):
        for name, parameter in self.model.named_parameters():
            self.note(f"{what}gradient of {name}", self.gradient(parameter))

    def update(self):
        self.loss = None
        self.optimizer.step()
        self.note_parameters()

    def note_parameters(self):
        for name, value in self.model.state_dict().items():
            self.note(f"parameter {name}", self.numbers(value))
        for number, state in sorted(self.optimizer.state_dict()["state"].items()):
            for name in sorted(set(state) - {"step"}):
                self.note(f"{name} {number}", self.numbers(state[name]))

    def switch(self, policy):
        if self.was_interrupted:
            return
        try:
            self.simulations[self.current].policy = policy
        except ValueError:
            self.note("switch", "refused")

    def use(self, number):
        self.loss = None
        self.leave()
        self.current = number
        self.enter()

    def enter(self):
        self.block = self.simulations[self.current]
        self.block.__enter__()

    def leave(self):
        """Leave the block; an override that matched nothing is noted."""
        try:
            self.block.__exit__(None, None, None)
        except ValueError:
            if not self.was_interrupted:
                self.note("leave", "refused")

    def swap(self, first, second):
        one, other = getattr(self.model, first), getattr(self.model, second)
        setattr(self.model, first, other)
        setattr(self.model, second, one)

    def share(self, first, second):
        self.loss = None
        self.zero_grad()
        setattr(self.model, second, getattr(self.model, first))
        self.optimizer = self.new_optimizer(*self.program.optimizer)

    def tie(self, first, second):
        self.loss = None
        self.zero_grad()
        one, other = (getattr(getattr(self.model, slot), "weight", None) for slot in (first, second))
        if one is not None and other is not None and one.shape == other.shape:
            getattr(self.model, second).weight = one
            self.optimizer = self.new_optimizer(*self.program.optimizer)

    def nest(self, slot):
        module = getattr(self.model, slot)
        setattr(self.model, slot, self.nested_module(module))

    def copy(self, kind):
        self.loss, both = None, (self.model, self.optimizer)
        self.model, self.optimizer = copy.deepcopy(both) if kind == "deepcopy" else pickle.loads(pickle.dumps(both))

    def write(self, slot):
        self.loss = None
        for parameter in getattr(self.model, slot).parameters():
            self.write_parameter(parameter, self.numbers(parameter) * np.float32(0.75))
            break

    def aside(self, body):
        with self.simulations[self.current].aside(), self.no_grad():
            self.look(body, "aside ")

    def without_gradients(self, body):
        with self.no_grad():
            self.look(body, "without gradients ")

    def look(self, body, what):
        leaves, self.leaves = self.leaves, [self.leaf(x) for x in self.leaf_numbers(2)]
        self.passed(body, what=what)
        self.leaves = leaves

    def nested(self, policy, body, loss):
        pending = self.loss, self.leaves
        self.leaves = [self.leaf(x) for x in self.leaf_numbers(4)]
        simulation = self.simulation(policy, self.program.seed + self.number)
        with self.inside(simulation):
            self.loss = self.passed(body, loss, "nested ")
            self.backward("nested ")
        self.loss, self.leaves = pending

    @contextmanager
    def inside(self, simulation):
        """A block of another simulation in the block; an override that matched nothing is noted."""
        simulation.__enter__()
        try:
            yield
        except BaseException as error:
            simulation.__exit__(type(error), error, None)
            raise
        try:
            simulation.__exit__(None, None, None)
        except ValueError:
            self.note("leave", "refused")

    def resume(self):
        self.leave()
        self.loss = None
        old = self.simulations[self.current]
        new = self.simulation(self.program.policies[self.current], old.state["seed"])
        new.load_state(old.state)
        self.simulations[self.current] = new
        self.enter()

    def reopen(self):
        self.leave()
        self.enter()

    def interrupted(self, count, body, loss):
        """Ctrl-C after so many lines of this package, in a step whose traces are then taken back."""
        self.was_interrupted = True
        self.loss, leaves, trace = None, self.leaves, len(self.trace)
        state, kept = self.simulations[self.current].state, copy.deepcopy(self.optimizer.state_dict())
        parameters = [(parameter, self.numbers(parameter)) for parameter in self.model.parameters()]
        self.zero_grad()
        try:
            with interrupting(count):
                self.leaves = [self.leaf(x) for x in self.leaf_numbers(2)]
                self.loss = self.passed(body, loss)
                self.backward()
                self.optimizer.step()
        except KeyboardInterrupt:
            pass
        self.zero_grad()
        del self.trace[trace:]
        self.loss, self.leaves = None, leaves
        self.simulations[self.current].load_state(state)
        self.restore(parameters, kept)

    def restore(self, parameters, state):
        for parameter, numbers in parameters:
            self.write_parameter(parameter, numbers)
        self.optimizer.load_state_dict(state)


@contextmanager
def interrupting(count):
    """A block with Ctrl-C after so many lines of this package's code."""
    is_raised = False
    before, handler = sys.gettrace(), signal.signal(signal.SIGINT, signal.default_int_handler)

    def at_lines(frame, event, argument):
        nonlocal count, is_raised
        file = frame.f_code.co_filename
        if event == "line" and not is_raised:
            count -= 1
            # The end of a with block is a line of its `with`, too. There a signal cannot arrive, and a lock would stay
            # locked.
            if count <= 0 and not linecache.getline(file, frame.f_lineno).lstrip().startswith("with "):
                is_raised = True
                signal.raise_signal(signal.SIGINT)
        return at_lines if "simfloat" in file and not is_raised else None

    sys.settrace(at_lines)
    try:
        yield
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGINT, handler)


class Root(sf.nn.Module):
    """The model: layers in slots, which a function runs."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = sf.nn.Linear(4, 4), sf.nn.Linear(4, 4), sf.nn.Linear(4, 4, bias=False)
        self.d, self.e = Perceptron(), sf.nn.LayerNorm(4)
        self.scale = sf.Parameter(np.ones((1, 4)))

    def forward(self, function):
        return function()


class Perceptron(sf.nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = sf.nn.Linear(4, 6), sf.nn.Linear(6, 4)

    def forward(self, x):
        return self.outer(self.inner(x).relu())


class Tensors(Machine):
    """By tensors of this package, perhaps observed."""

    new_model, nested_module = Root, staticmethod(sf.nn.Sequential)
    concatenate, mse_loss, cross_entropy = map(staticmethod, (sf.concatenate, sf.nn.mse_loss, sf.nn.cross_entropy))
    data = classes = staticmethod(np.asarray)
    no_grad = staticmethod(sf.no_grad)

    def __init__(self, program, observer=None, meter=None):
        super().__init__(program)
        self.observer, self.meter = observer, meter

    def new_optimizer(self, kind, options):
        return getattr(sf.optim, kind)(self.model.parameters(), **options)

    def simulation(self, policy, seed):
        simulation = sf.simulate(policy, seed, self.observer)
        if self.meter is not None:
            simulation.meter = self.meter()
        return simulation

    def leaf(self, x):
        return sf.Tensor(x, requires_grad=True)

    def numbers(self, x):
        return np.array(x.data if isinstance(x, sf.Tensor) else x)

    def gradient(self, x):
        return None if x.grad is None else np.array(x.grad)

    def write_parameter(self, parameter, numbers):
        parameter.data = numbers

    def state_of(self, simulation):
        # An interrupted step changes the order in which places occur for the first time.
        return {
            what: sorted(part, key=str) if isinstance(part, list) else part for what, part in simulation.state.items()
        }
