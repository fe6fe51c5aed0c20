"""The machine that runs programs by definitions: slowly, with fractions, without tensors, places and kernels.

Gradients and their order, modules and updates follow the documents.
"""

from collections import Counter
from math import prod
from types import SimpleNamespace

import numpy as np

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import Rounding
from simfloat.policy import Policy
from tests.properties.arithmetic import NOW, Arithmetic, Place, Simulated, Steps, has_reference, inside
from tests.properties.machines import Machine


class Value:
    """Numbers, the operation that they come from, and their gradient."""

    def __init__(self, numbers, requires_grad=False, node=None):
        self.numbers, self.requires_grad, self.node, self.grad = (
            np.asarray(numbers, np.float64),
            requires_grad,
            node,
            None,
        )

    shape = property(lambda value: value.numbers.shape)

    def backward(self):
        run_backward(self)

    def __add__(self, other):
        return passing("add", Arithmetic.add, (1, 1), self, other)

    def __sub__(self, other):
        return passing("subtract", Arithmetic.subtract, (1, -1), self, other)

    def __rsub__(self, other):
        return passing("subtract", Arithmetic.subtract, (1, -1), other, self)

    def __mul__(self, other):
        slopes = (lambda u, g, y, a, b: u.multiply(g, b), lambda u, g, y, a, b: u.multiply(g, a))
        return operation("multiply", Arithmetic.multiply, slopes, self, other)

    def __truediv__(self, other):
        slopes = (
            lambda u, g, y, a, b: u.divide(g, b),
            lambda u, g, y, a, b: u.multiply(-g, u.divide(u.divide(a, b), b)),
        )
        return operation("divide", Arithmetic.divide, slopes, self, other)

    def sum(self, axis=None, keepdims=False):
        axes, kept = _axes(self, axis)
        return operation(
            "sum",
            lambda u, a: u.sum(a, axes).reshape(kept if keepdims else _dropped(a.shape, axes)),
            (lambda u, g, y, a: np.broadcast_to(u.round(g).reshape(kept), a.shape),),
            self,
        )

    def mean(self, axis=None, keepdims=False):
        axes, kept = _axes(self, axis)
        count = float(prod(self.shape[axis] for axis in axes))
        return operation(
            "mean",
            lambda u, a: u.mean(a, axes).reshape(kept if keepdims else _dropped(a.shape, axes)),
            (lambda u, g, y, a: np.broadcast_to(u.divide(g, count).reshape(kept), a.shape),),
            self,
        )

    def __matmul__(self, other):
        return product("matmul", self, other, transposed=False)

    @property
    def T(self):
        return operation("transpose", None, (lambda u, g, y, a: u.round(g.T),), self, moved=np.transpose)

    def reshape(self, *shape):
        slopes = (lambda u, g, y, a: u.round(g.reshape(a.shape)),)
        return operation("reshape", None, slopes, self, moved=lambda a: a.reshape(shape))

    def __getitem__(self, key):
        def slope(u, g, y, a):
            full = np.zeros(a.shape)
            full[key] = g
            return u.round(full)

        return operation("index", None, (slope,), self, moved=lambda a: a[key])

    def softmax(self, axis):
        def forward(u, x):
            powers = u.apply("exp", u.subtract(x, x.max(1, keepdims=True)))
            return u.divide(powers, u.sum(powers, (1,))[:, np.newaxis])

        def slope(u, g, y, a):
            terms = u.multiply(y, g)
            return u.subtract(terms, u.multiply(y, u.sum(terms, (1,))[:, np.newaxis]))

        return composite("softmax", forward, (slope,), self)


#: Methods of one operand: the operation, its result and its gradient.
UNARY = {
    "__neg__": ("negative", lambda u, a: u.round(-a), lambda u, g, y, a: u.round(-g)),
    "abs": ("abs", lambda u, a: u.round(np.abs(a)), lambda u, g, y, a: u.round(g * np.sign(a))),
    "relu": (
        "relu",
        lambda u, a: u.round(np.where(a <= 0, 0.0, a)),
        lambda u, g, y, a: u.round(np.where(y <= 0, 0.0, g)),
    ),
    "tanh": (
        "tanh",
        lambda u, a: u.apply("tanh", a),
        lambda u, g, y, a: u.multiply(g, u.subtract(1.0, u.multiply(y, y))),
    ),
    "sigmoid": (
        "sigmoid",
        lambda u, a: u.apply("sigmoid", a),
        lambda u, g, y, a: u.multiply(g, u.multiply(y, u.subtract(1.0, y))),
    ),
    "exp": ("exp", lambda u, a: u.apply("exp", a), lambda u, g, y, a: u.multiply(g, y)),
}
for method, (name, forward, slope) in UNARY.items():
    setattr(Value, method, lambda x, row=(name, forward, (slope,)): operation(*row, x))


def _axes(value, axis):
    axes = tuple(range(value.numbers.ndim)) if axis is None else (axis,)
    return axes, tuple(1 if i in axes else n for i, n in enumerate(value.shape))


def _dropped(shape, axes):
    return tuple(n for i, n in enumerate(shape) if i not in axes)


class Parameter(Value):
    """A value that is used as rounded to its role `weights`."""

    def __init__(self, numbers):
        super().__init__(numbers, True)

    def used(self):
        path = NOW.simulation.path_of(self)
        weights = NOW.simulation.policy.recipe(path, "update").weights
        return path, np.vectorize(lambda v: round_value(float(v), weights, sf.nearest_even), otypes=[float])(
            self.numbers
        )


def operation(name, forward, slopes, *operands, moved=None, place=None, reach=True):
    """An operation, recorded with its derivatives."""
    place, values = place or Place(name), [x if isinstance(x, Value) else Value(x) for x in operands]
    used = [x.used() if isinstance(x, Parameter) else (None, x.numbers) for x in values]
    paths, arrays = [path for path, _ in used], [numbers for _, numbers in used]
    y = moved(*arrays) if forward is None else forward(place.forward() if reach else Steps(place), *arrays)
    y, more = y if isinstance(y, tuple) else (y, ())
    if not (NOW.is_recording and any(x.requires_grad for x in values)):
        return Value(y)

    def derivative(slope, a):
        return lambda u, g: _summed(u, slope(u, g, (y, *more) if more else y, *arrays), a.shape)

    derivatives = [derivative(slope, a) for slope, a in zip(slopes, arrays, strict=True)]
    return Value(y, True, SimpleNamespace(parents=values, derivatives=derivatives, place=place, paths=paths))


def _summed(u, g, shape):
    if g.shape == shape:
        return g
    added = g.ndim - len(shape)
    axes = [i for i in range(g.ndim) if i < added or (shape[i - added] == 1 and g.shape[i] != 1)]
    return u.sum(g, tuple(axes)).reshape(shape)


def passing(name, forward, signs, *operands):
    """An addition or subtraction, which hands its gradient on: rounded, or summed if the operand was broadcast."""
    shapes = [np.shape(x.numbers if isinstance(x, Value) else x) for x in operands]
    slopes = [
        lambda u, g, y, *_, sign=sign, shape=shape: u.round(sign * g) if g.shape == shape else sign * g
        for sign, shape in zip(signs, shapes, strict=True)
    ]
    return operation(name, forward, slopes, *operands)


def composite(name, forward, slopes, *operands):
    return operation(name, forward, slopes, *operands, reach=False)


def product(name, x, y, transposed):
    """A product of matrices, of the second of which the transpose is taken in a linear layer."""
    place = Place(name)
    a_path, b_path = (NOW.simulation.path_of(one) if isinstance(one, Parameter) else None for one in (x, y))

    def casts():
        return place.cast(a_path), place.cast(b_path), place.recipe().compute_gradients

    def forward(u, a, b):
        return u.matmul(a, b.T if transposed else b, *casts()[:2])

    def to_a(u, g, _, a, b):
        return u.matmul(g, b if transposed else b.T, casts()[2], casts()[1])

    def to_b(u, g, _, a, b):
        if transposed:
            return u.matmul(g.T, a, casts()[2], casts()[0])
        return u.matmul(a.T, g, casts()[0], casts()[2])

    return operation(name, forward, (to_a, to_b), x, y, place=place)


def concatenate(values, axis):
    before, derivatives = 0, []
    for value in values:
        key = (slice(None),) * axis + (slice(before, before + value.shape[axis]),)
        derivatives.append(lambda u, g, y, *_, key=key: u.round(g[key]))
        before += value.shape[axis]
    return operation("concatenate", None, derivatives, *values, moved=lambda *arrays: np.concatenate(arrays, axis))


def mse_loss(x, y):
    def forward(u, a, b):
        d = u.subtract(a, b)
        return u.mean(u.multiply(d, d), (0, 1))

    def to_x(u, g, _, a, b):
        d = u.subtract(a, b)
        return u.multiply(u.divide(g, float(d.size)), u.multiply(d, 2.0))

    return composite("mse_loss", forward, (to_x, None), x, y)


def cross_entropy(x, labels):
    rows = np.arange(len(labels))

    def forward(u, a):
        below = u.subtract(a, a.max(1, keepdims=True))
        return u.subtract(below, u.apply("log", u.sum(u.apply("exp", below), (1,))[:, np.newaxis]))

    def slope(u, g, y, a):
        return u.subtract(g, u.multiply(u.apply("exp", y), u.sum(g, (1,))[:, np.newaxis]))

    def chosen(u, a):
        return u.divide(u.sum(u.round(-a[rows, labels], "negative"), (0,)), float(len(labels)))

    def to_chosen(u, g, y, a):
        full = np.zeros(a.shape)
        full[rows, labels] = u.divide(u.round(-g), float(len(labels)))
        return full

    with inside(composites=("cross_entropy",)):
        return composite("cross_entropy", chosen, (to_chosen,), composite("log_softmax", forward, (slope,), x))


def layer_norm(x, weight, bias):
    def average(u, a):
        return u.mean(a, (1,))[:, np.newaxis]

    def forward(u, a, w, b):
        mean = average(u, a)
        d = u.subtract(a, mean)
        factor = u.apply("rsqrt", u.add(average(u, u.multiply(d, d)), 1e-5))
        return u.add(u.multiply(u.multiply(d, factor), w), b), (mean, factor)

    def normal(u, a, outputs):
        return u.multiply(u.subtract(a, outputs[1]), outputs[2])

    def to_x(u, g, outputs, a, w, b):
        passed = u.multiply(g, w)
        y = normal(u, a, outputs)
        centred = u.subtract(passed, average(u, passed))
        return u.multiply(u.subtract(centred, u.multiply(y, average(u, u.multiply(passed, y)))), outputs[2])

    def to_weight(u, g, outputs, a, w, b):
        return u.sum(u.multiply(g, normal(u, a, outputs)), (0,))

    return composite("layer_norm", forward, (to_x, to_weight, lambda u, g, *_: u.sum(g, (0,))), x, weight, bias)


def run_backward(root):
    """From the root through what led to it; a gradient goes on when its last part has come, the latest first."""
    uses, stack = Counter(), [root]
    while stack:
        node = stack.pop().node
        for parent in [] if node is None else node.parents:
            if parent.requires_grad:
                if not uses[id(parent)]:
                    stack.append(parent)
                uses[id(parent)] += 1
    gradients, ready = {id(root): np.array(1.0)}, [root]
    while ready:
        value = ready.pop()
        incoming, node = gradients.pop(id(value)), value.node
        if node is None:
            value.grad = incoming
            continue
        for number, parent in enumerate(node.parents):
            if parent.requires_grad:
                uses[id(parent)] -= 1
                u = node.place.backward(number, node.paths[number])
                gradient = node.derivatives[number](u, incoming)
                if id(parent) in gradients:
                    gradient = u.add(gradients[id(parent)], gradient)
                if not uses[id(parent)]:
                    if parent.node is None and parent.grad is not None:
                        gradient = u.add(parent.grad, gradient)
                    ready.append(parent)
                gradients[id(parent)] = gradient


class Module:
    """Parameters and modules by name."""

    def __call__(self, x):
        paths = NOW.names or {id(module): path for path, module in self.named_modules()}
        with inside(names=paths, path=paths[id(self)]):
            return self.forward(x)

    def forward(self, function):
        return function()

    def named_modules(self, path="", known=None):
        known = set() if known is None else known
        if id(self) not in known:
            known.add(id(self))
            yield path, self
            for name, part in vars(self).items():
                if isinstance(part, Module):
                    yield from part.named_modules(f"{path}.{name}" if path else name, known)

    def named_parameters(self):
        known = set()
        for path, module in self.named_modules():
            for name, part in vars(module).items():
                if isinstance(part, Parameter) and id(part) not in known:
                    known.add(id(part))
                    yield f"{path}.{name}" if path else name, part

    def parameters(self):
        return [parameter for _, parameter in self.named_parameters()]

    def state_dict(self, path=""):
        found = {path + name: part for name, part in vars(self).items() if isinstance(part, Parameter)}
        for name, part in vars(self).items():
            if isinstance(part, Module):
                found |= part.state_dict(f"{path}{name}.")
        return found

    def at(self, path):
        part = self
        for name in path.split("."):
            part = None if part is None else vars(part).get(name)
        return part


class Linear(Module):
    def __init__(self, inputs, outputs, bias=True):
        self.weight = Parameter(np.zeros((outputs, inputs)))
        if bias:
            self.bias = Parameter(np.zeros(outputs))

    def forward(self, x):
        y = product("linear", x, self.weight, transposed=True)
        return y + self.bias if "bias" in vars(self) else y


class LayerNorm(Module):
    def __init__(self):
        self.weight, self.bias = Parameter(np.zeros(4)), Parameter(np.zeros(4))

    def forward(self, x):
        return layer_norm(x, self.weight, self.bias)


class Perceptron(Module):
    def __init__(self):
        self.inner, self.outer = Linear(4, 6), Linear(6, 4)

    def forward(self, x):
        return self.outer(self.inner(x).relu())


class Sequential(Module):
    def __init__(self, module):
        vars(self)["0"] = module

    def forward(self, x):
        return vars(self)["0"](x)


class Root(Module):
    def __init__(self):
        self.a, self.b, self.c = Linear(4, 4), Linear(4, 4), Linear(4, 4, bias=False)
        self.d, self.e = Perceptron(), LayerNorm()
        self.scale = Parameter(np.zeros((1, 4)))


class SGD:
    """By the formula of the specification."""

    def __init__(self, parameters, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
        self.parameters, self.lr, self.momentum = parameters, lr, momentum
        self.weight_decay, self.nesterov, self.state = weight_decay, nesterov, [{} for _ in parameters]

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        for parameter, state in zip(self.parameters, self.state, strict=True):
            if parameter.grad is not None:
                self.update(parameter, state, parameter.grad)

    def update(self, parameter, state, d):
        path, w = parameter.used()
        simulation, recipe = NOW.simulation, NOW.simulation.policy.recipe(path, "update")
        q = Arithmetic(simulation, recipe, "weights", f"{path}.update", "update", "update")
        s = Arithmetic(simulation, recipe, "optimizer_state", f"{path}.momentum_buffer", "update", "update")
        last = Arithmetic(simulation, recipe, "weights", path, "update", "update", rounding=_last_rounding(recipe))
        if self.weight_decay:
            d = q.add(d, q.multiply(self.weight_decay, w))
        if self.momentum:
            before = state.get("momentum_buffer")
            m = state["momentum_buffer"] = s.round(d) if before is None else s.add(q.multiply(self.momentum, before), d)
            d = q.add(d, q.multiply(self.momentum, m)) if self.nesterov else m
        u = q.multiply(-self.lr, d)
        if recipe.update == "kahan":
            u = q.subtract(u, state["compensation"]) if "compensation" in state else u
            parameter.numbers = last.add(w, u)
            state["compensation"] = q.subtract(q.subtract(parameter.numbers, w), u)
        else:
            parameter.numbers = last.add(w, u)

    def state_dict(self):
        return {"state": {number: state for number, state in enumerate(self.state) if state}}


def _last_rounding(recipe):
    if isinstance(recipe.update, Rounding):
        return recipe.update
    if recipe.update != "stochastic":
        return sf.nearest_even
    return recipe.rounding if recipe.rounding.is_stochastic else sf.stochastic()


class Definition(Machine):
    """By definitions. Which switches are refused, for overrides without a match, it is told."""

    new_model, nested_module = Root, Sequential
    concatenate, mse_loss, cross_entropy = map(staticmethod, (concatenate, mse_loss, cross_entropy))
    data, classes = Value, staticmethod(np.asarray)

    def __init__(self, program, refused):
        super().__init__(program)
        self.refused = refused

    def new_optimizer(self, kind, options):
        return SGD(self.model.parameters(), **options)

    def simulation(self, policy, seed):
        return Simulated(policy, seed)

    def leaf(self, x):
        return Value(x, True)

    def numbers(self, x):
        return np.array(x.numbers if isinstance(x, Value) else x)

    def gradient(self, x):
        return None if x.grad is None else np.array(x.grad)

    def write_parameter(self, parameter, numbers):
        parameter.numbers = np.float64(np.float32(numbers))

    def state_of(self, simulation):
        return {key: calls for key, calls in simulation.calls.items() if calls}

    def no_grad(self):
        return inside(is_recording=False)

    def run(self):
        NOW.counts = Counter()
        return super().run()

    def passed(self, body, loss=None, what=""):
        NOW.model = self.model
        return super().passed(body, loss, what)

    def update(self):
        NOW.model = self.model
        super().update()

    def enter(self):
        NOW.simulation = self.simulations[self.current]

    def leave(self):
        NOW.simulation = None

    def switch(self, policy):
        if self.was_interrupted:
            return
        if self.number in self.refused:
            self.note("switch", "refused")
        else:
            self.simulations[self.current].policy = policy

    def inside(self, simulation):
        return inside(simulation=simulation)

    def resume(self):
        self.loss = None
        self.simulations[self.current].names.clear()  # the new simulation has not seen a parameter yet

    def interrupted(self, count, body, loss):
        self.loss, self.was_interrupted = None, True
        self.zero_grad()

    def refuse(self, error):
        raise error


def is_defined(program):
    """True if a program has a reference."""
    policies = [part for action in (program.policies, *program.actions) for part in action if isinstance(part, Policy)]
    return program.optimizer[0] == "SGD" and all(map(has_reference, policies))
