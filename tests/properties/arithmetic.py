"""Places and their arithmetic by definitions, with fractions: the arithmetic of the reference of random programs.

From the package it uses policies, formats and the definition of rounding; from the self-test, sums by the contract of
their accumulators. Places, roles and streams follow the documentation.
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

from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.arithmetic.scaling import Delayed, Hadamard, PerTensor
from simfloat.formats.decimal_functions import value_between
from simfloat.formats.definition import round_value
from simfloat.sums import Accumulator
from simfloat.tools.selftest.orders import clamped_quotient, dot, elements, largest, tensor_scale
from tests.reference import draws, operate

#: What is in force: the simulation, the path of the running module, the composites, and whether gradients are wanted.
NOW = SimpleNamespace(simulation=None, path="", composites=(), is_recording=True, names=None, counts=Counter())


def values_of(policy):
    """The values of all roles, and of the roles of overrides."""
    given = [value for name, value in vars(policy).items() if name != "overrides"]
    return given + [value for override in policy.overrides for _, value in override.roles]


def has_reference(policy):
    """True if this module defines everything that the policy needs."""
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
        self.is_observed = True
        self.policy, self.seed, self.calls, self.histories, self.names = policy, seed, Counter(), {}, {}

    def take(self, key):
        """The seed and the number of a call of the stream at a place."""
        self.calls[key] += 1
        return _seed_of(self.seed, key), self.calls[key] - 1

    def path_of(self, parameter):
        """The path of its first use while it is valid; then its path in the model."""
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
        copy.names, copy.is_observed = dict(self.names), False
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

    def _count(self, count):
        """Note so many results, by path, operation and phase, as a recorder does, which is not asked aside."""
        path, phase, operation, _ = self.key
        if self.simulation.is_observed:
            NOW.counts[path, operation, phase] += count

    def _each(self, function, *operands):
        arrays = np.broadcast_arrays(*operands)
        self._count(arrays[0].size)
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
        self._count(len(pairs))
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
    x = x if name in ("log", "rsqrt") else max(min(x, 200.0), -200.0)  # beyond, only its place beside a limit matters
    if (bounds := value_between(row, (Fraction(x),), 200)) is not None:
        return sum(bounds) / 2
    with localcontext(prec=200):  # it is zero, or nearer to another number than its bounds tell
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
