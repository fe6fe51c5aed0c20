"""The machine that carries out programs by definitions: slow, with fractions, and without tensors, places and kernels.

Of the package it uses policies, formats and the definition of rounding, and of its self-test sums by the contract of
their accumulators. Everything else follows the documents: places and roles, streams, gradients and their order.
"""

import json
from collections import Counter
from contextlib import contextmanager
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from math import prod
from types import SimpleNamespace

import numpy as np

import simfloat as sf
from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.arithmetic.scaling import Delayed, Hadamard, PerTensor
from simfloat.formats.decimal_functions import value_between
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import Rounding
from simfloat.policy import Policy
from simfloat.sums import Accumulator
from simfloat.tools.selftest.orders import clamped_quotient, dot, elements, largest, tensor_scale
from tests.properties.machines import Machine
from tests.reference import draws, operate

#: What is in force: the simulation, the path of the running module, the composites, and whether gradients are wanted.
NOW = SimpleNamespace(simulation=None, path="", composites=(), is_recording=True, names=None)


def values_of(policy):
    """The values of all roles, and of the roles of overrides."""
    given = [value for name, value in vars(policy).items() if name != "overrides"]
    return given + [value for override in policy.overrides for _, value in override.roles]


def has_reference(policy):
    """Whether all that the policy asks for is defined here."""
    values = values_of(policy)
    scales = [as_cast(value).scale for value in values if isinstance(value, Cast)]
    sums = [value for value in values if isinstance(value, Accumulator)]
    return (
        not any(isinstance(value, Hadamard) or value is True or value == "widest" for value in values)
        and not any(isinstance(value, Cast) and value.rounding.is_stochastic for value in values)
        and all(isinstance(scale, PerTensor | Delayed | None) for scale in scales)
        and not any(accumulator.is_matrix_unit for accumulator in sums)
    )


class Simulated:
    """A simulation: its policy, the calls of its streams, histories of delayed scalings, and paths of parameters."""

    def __init__(self, policy, seed):
        self.policy, self.seed, self.calls, self.histories, self.names = policy, seed, Counter(), {}, {}

    def take(self, key):
        """The seed and the number of a call of the stream at a place."""
        self.calls[key] += 1
        return _seed_of(self.seed, key), self.calls[key] - 1

    def path_of(self, parameter):
        """Where it was first used, as long as it is there; then its path in the model."""
        known, path, model = self.names.get(id(parameter), (None, "", None))
        if known is not parameter or model.at(path) is not parameter:
            path, model = next(name for name, one in NOW.model.named_parameters() if one is parameter), NOW.model
            self.names[id(parameter)] = parameter, path, model
        return path

    @property
    def state(self):
        return {
            "seed": self.seed,
            "calls": Counter(self.calls),
            "histories": {k: list(v) for k, v in self.histories.items()},
        }

    def load_state(self, state):
        self.calls, self.histories = Counter(state["calls"]), {k: list(v) for k, v in state["histories"].items()}

    @contextmanager
    def aside(self):
        copy = Simulated(self.policy, self.seed)
        copy.load_state(self.state)
        copy.names = dict(self.names)
        with inside(simulation=copy):
            yield copy


@lru_cache(maxsize=1 << 14)
def _seed_of(seed, key):
    return int.from_bytes(blake2b(json.dumps([seed, *key]).encode(), digest_size=8).digest(), "little")


@contextmanager
def inside(**changes):
    before = dict(vars(NOW))
    vars(NOW).update(changes)
    try:
        yield
    finally:
        vars(NOW).update(before)


class Arithmetic:
    """The operations of a role of the policy at a path, in a phase."""

    def __init__(self, simulation, recipe, role, path, phase, operation, operand=None, rounding=None):
        self.simulation, self.recipe, self.key = simulation, recipe, (path, phase, operation, operand)
        self.format, self.rounding = getattr(recipe, role), rounding or recipe.rounding
        self.accumulate = recipe.accumulate_gradients if phase == "backward" else recipe.accumulate

    def _draws(self, count):
        if not self.rounding.is_stochastic:
            return [0] * count
        seed, call = self.simulation.take(self.key)
        return draws(count, self.rounding, seed, call)

    def _each(self, function, *operands):
        arrays = np.broadcast_arrays(*operands)
        shape, flat = arrays[0].shape, zip(*(x.ravel().tolist() for x in arrays), strict=True)
        every = zip(flat, self._draws(prod(shape)), strict=True)
        return np.array([function(*map(float, x), r) for x, r in every], np.float64).reshape(shape)

    def round(self, x, step=""):
        return self._each(lambda v, r: round_value(v, self.format, self.rounding, r), x)

    def apply(self, name, *operands):
        if OPERATIONS[name].value and name != "divide":
            return self._each(lambda v, r: round_value(value_of(name, v), self.format, self.rounding, r), *operands)
        return self._each(lambda *x: operate(name, self.format, self.rounding, *x[:-1], random=x[-1]), *operands)

    def add(self, a, b):
        return self.apply("add", a, b)

    def subtract(self, a, b):
        return self.apply("subtract", a, b)

    def multiply(self, a, b):
        return self.apply("multiply", a, b)

    def divide(self, a, b):
        return self.apply("divide", a, b)

    def sum(self, x, axes):
        """Over axes, which are dropped."""
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        count, shape = prod(x.shape[axis] for axis in axes), tuple(x.shape[axis] for axis in kept)
        rows = x.transpose(*kept, *axes).reshape(-1, count)
        return self._totals([(row.tolist(), [1.0] * count) for row in rows], self.recipe.reduce).reshape(shape)

    def mean(self, x, axes):
        return self.divide(self.sum(x, axes), float(prod(x.shape[axis] for axis in axes)))

    def matmul(self, a, b, a_cast, b_cast):
        """Of matrices, whose operands are rounded first; both scales are divided out with the last rounding."""
        (a, p), (b, q) = (self._operand(*each) for each in ((a, a_cast, 0), (b, b_cast, 1)))
        pairs = [(row.tolist(), column.tolist()) for row in a for column in b.T]
        return self._totals(pairs, self.accumulate, p * q).reshape(len(a), b.shape[1])

    def _totals(self, pairs, by, scale=1.0):
        modes = (self.rounding, *by.roundings)
        seed, call = self.simulation.take(self.key) if any(mode.is_stochastic for mode in modes) else (0, 0)
        words = draws(len(pairs), self.rounding, seed, call) if self.rounding.is_stochastic else [0] * len(pairs)
        totals = []
        for i, ((a, b), word) in enumerate(zip(pairs, words, strict=True)):
            total = exact_total(a, b) if by.result is None else dot(by, a, b, element=i, seed=seed, call=call)
            if isinstance(total, Fraction) or scale == 1.0:
                totals.append(
                    round_value(total / Fraction(scale) if scale != 1.0 else total, self.format, self.rounding, word)
                )
            else:
                totals.append(operate("divide", self.format, self.rounding, total, scale, random=word))
        return np.array(totals)

    def _operand(self, x, cast, side):
        cast, scale = as_cast(cast), 1.0
        if isinstance(cast.scale, Delayed):
            history = self.simulation.histories.setdefault((*self.key, side), [])
            scale = delayed_scale(cast, history, float(largest(x)))
        elif cast.scale is not None:
            scale = tensor_scale(x, cast.format)
        if cast.scale is not None:
            return elements(x, cast.format, scale), scale
        return np.vectorize(lambda v: round_value(float(v), cast.format, cast.rounding), otypes=[float])(x), scale


def delayed_scale(cast, history, amax):
    """The scale from earlier amaxes; the last entry of `history` is the one from which it follows."""
    amaxes, greatest = history or ([], None)
    scale = 1.0 if greatest is None else clamped_quotient(cast.format.max * 2.0**-cast.scale.margin, greatest)
    amaxes = [*amaxes, amax][-cast.scale.history :]
    history[:] = amaxes, max(amaxes) if np.isfinite(amaxes).all() and max(amaxes) > 0 else greatest
    return scale


def exact_total(a, b):
    """An exact sum of products."""
    if not np.isfinite([*a, *b]).all():
        return sum(x * y for x, y in zip(a, b, strict=True))
    return sum(Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True))


def value_of(name, x):
    """The value of a function of the catalog by decimals, with more digits than decide its rounding."""
    row = OPERATIONS[name]
    if not x or not np.isfinite(x):
        return dict(zip(("0.0", "-0.0", "inf", "-inf", "nan"), row.specials, strict=True))[str(x)]
    if row.positive and x < 0:
        return np.nan
    if (bounds := value_between(row, (Fraction(x),), 60)) is not None:
        return sum(bounds) / 2
    with localcontext(prec=60):  # it is zero, or nearer to another number than its bounds tell
        return Fraction(row.value(Decimal(x)))


class Place:
    """An operation at a path, within composites, under the policy in force when it ran."""

    def __init__(self, name, path=None):
        self.simulation, self.policy = NOW.simulation, NOW.simulation.policy
        self.path, self.operations = NOW.path if path is None else path, (*NOW.composites, name)

    def recipe(self, path=None):
        return self.policy.recipe(self.path if path is None else self.path_in_layer(path), *self.operations)

    def path_in_layer(self, path):
        inside = not self.path or path.startswith(f"{self.path}.")
        return path if inside else f"{self.path}.{path.rpartition('.')[2]}"

    def forward(self, step=None):
        operations = self.operations if step is None else (*self.operations, step)
        recipe = self.policy.recipe(self.path, *operations)
        return Arithmetic(self.simulation, recipe, "activations", self.path, "forward", operations[-1])

    def backward(self, operand, path):
        role = "activation_gradients" if path is None else "weight_gradients"
        recipe = self.recipe(path)
        return Arithmetic(self.simulation, recipe, role, self.path, "backward", self.operations[-1], operand)

    def cast(self, path):
        return self.recipe().compute if path is None else self.recipe(path).compute_weights


class Steps:
    """The steps of a composite, each with its own place."""

    def __init__(self, place):
        self.place = place

    def apply(self, name, *operands):
        return self.place.forward(name).apply(name, *operands)

    add, subtract, multiply, divide = Arithmetic.add, Arithmetic.subtract, Arithmetic.multiply, Arithmetic.divide

    def round(self, x, step):
        return self.place.forward(step).round(x)

    def sum(self, x, axes):
        return self.place.forward("sum").sum(x, axes)

    def mean(self, x, axes):
        return self.place.forward("mean").mean(x, axes)


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

    def __neg__(self):
        return operation("negative", lambda u, a: u.round(-a), (lambda u, g, y, a: u.round(-g),), self)

    def abs(self):
        slope = lambda u, g, y, a: u.round(g * np.sign(a))  # noqa: E731
        return operation("abs", lambda u, a: u.round(np.abs(a)), (slope,), self)

    def relu(self):
        slope = lambda u, g, y, a: u.round(np.where(y <= 0, 0.0, g))  # noqa: E731
        return operation("relu", lambda u, a: u.round(np.where(a <= 0, 0.0, a)), (slope,), self)

    def tanh(self):
        slope = lambda u, g, y, a: u.multiply(g, u.subtract(1.0, u.multiply(y, y)))  # noqa: E731
        return operation("tanh", lambda u, a: u.apply("tanh", a), (slope,), self)

    def sigmoid(self):
        slope = lambda u, g, y, a: u.multiply(g, u.multiply(y, u.subtract(1.0, y)))  # noqa: E731
        return operation("sigmoid", lambda u, a: u.apply("sigmoid", a), (slope,), self)

    def exp(self):
        return operation("exp", lambda u, a: u.apply("exp", a), (lambda u, g, y, a: u.multiply(g, y),), self)

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
        slope = lambda u, g, y, a: u.round(g.reshape(a.shape))  # noqa: E731
        return operation("reshape", None, (slope,), self, moved=lambda a: a.reshape(shape))

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
        if self.number in self.refused:
            self.note("switch", "refused")
        else:
            self.simulations[self.current].policy = policy

    def inside(self, simulation):
        return inside(simulation=simulation)

    def resume(self):
        self.loss = None

    def interrupted(self, count, body, loss):
        self.loss = None
        self.zero_grad()

    def refuse(self, error):
        raise error


def is_defined(program):
    """Whether a program has a reference."""
    policies = [part for action in (program.policies, *program.actions) for part in action if isinstance(part, Policy)]
    return program.optimizer[0] == "SGD" and all(map(has_reference, policies))
