"""Stored results belong to a function with its state: another state is another function, or raises an error."""

import functools
import importlib
import io
import os
import random
import subprocess
import sys
import textwrap
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import simfloat as sf
from simfloat.studies.state_digest import function_digest

ROOT = Path(__file__).parents[2]


def program(text, **names):
    """The function `f` of a program that is typed into a notebook."""
    space = {"__name__": "__main__", "np": np, "sf": sf, **names}
    exec(textwrap.dedent(text), space)
    return space["f"]


def of_value(value):
    return lambda seed: value


class Plain:
    def __init__(self, **values):
        vars(self).update(values)


class Slotted:
    __slots__ = ("lr",)

    def __init__(self, lr):
        self.lr = lr


class Numbers(list):
    pass


def generator(draws):
    rng = np.random.default_rng(0)
    rng.standard_normal(draws)
    return rng


def random_state(draws):
    rng = np.random.RandomState(0)
    rng.rand(draws)
    return rng


def python_random(draws):
    rng = random.Random(0)
    for _ in range(draws):
        rng.random()
    return rng


def optimizer(lr, steps=0):
    model = sf.nn.Linear(2, 1, rng=0)
    made = sf.optim.Adam(model.parameters(), lr=lr)
    with sf.simulate("fp32"):
        for _ in range(steps):
            made.zero_grad()
            model(np.ones((1, 2))).sum().backward()
            made.step()
    return made


def recorder(count):
    found = sf.Recorder()
    sf.round(np.full(count, 1e9), sf.FP16, observer=found)
    return found


#: Two states of one type, made anew at each call.
STATES = {
    "generator": (lambda: generator(0), lambda: generator(1)),
    "random state": (lambda: random_state(0), lambda: random_state(1)),
    "random": (lambda: python_random(0), lambda: python_random(1)),
    "bound method of a generator": (lambda: generator(0).normal, lambda: generator(1).normal),
    "sparse": (lambda: scipy.sparse.csr_array(np.eye(3)), lambda: scipy.sparse.csr_array(np.diag([1, 1, 2.0]))),
    "batches": (lambda: sf.train.Batches(np.arange(4.0), np.arange(4), 2, seed=1),
                lambda: sf.train.Batches(np.arange(4.0), np.arange(4), 2, seed=2)),
    "data of batches": (lambda: sf.train.Batches(np.arange(4.0), np.arange(4), 2),
                        lambda: sf.train.Batches(np.ones(4), np.arange(4), 2)),
    "weights": (lambda: sf.nn.Linear(2, 1, rng=0), lambda: sf.nn.Linear(2, 1, rng=1)),
    "model": (lambda: sf.nn.Sequential(sf.nn.Linear(2, 1, rng=0), sf.nn.ReLU()),
              lambda: sf.nn.Sequential(sf.nn.Linear(2, 1, rng=0), sf.nn.GELU())),
    "dropout": (lambda: sf.nn.Dropout(0.1), lambda: sf.nn.Dropout(0.2)),
    "mode": (lambda: sf.nn.Dropout(0.1).train(), lambda: sf.nn.Dropout(0.1).eval()),
    "tensor": (lambda: sf.Tensor([1.0]), lambda: sf.Tensor([2.0])),
    "optimizer": (lambda: optimizer(0.1), lambda: optimizer(0.2)),
    "moments": (lambda: optimizer(0.1, 1), lambda: optimizer(0.1, 2)),
    "scaler": (lambda: sf.optim.DynamicLossScale(8), lambda: sf.optim.DynamicLossScale(16)),
    "stream": (lambda: sf.BitStream(1), lambda: sf.BitStream(2)),
    "simulation": (lambda: sf.simulate("fp32", seed=1), lambda: sf.simulate("fp32", seed=2)),
    "recorder": (lambda: recorder(1), lambda: recorder(2)),
    "schedule": (lambda: sf.optim.StepLR(optimizer(0.1), 3), lambda: sf.optim.StepLR(optimizer(0.1), 4)),
    "memoryview": (lambda: memoryview(b"ab"), lambda: memoryview(b"ac")),
    "bytearray": (lambda: bytearray(b"ab"), lambda: bytearray(b"ac")),
    "text in memory": (lambda: io.StringIO("a"), lambda: io.StringIO("b")),
    "iterator": (lambda: iter([1, 2]), lambda: iter([1, 3])),
    "object": (lambda: Plain(lr=1), lambda: Plain(lr=2)),
    "slots": (lambda: Slotted(1), lambda: Slotted(2)),
    "namespace": (lambda: types.SimpleNamespace(a=[1]), lambda: types.SimpleNamespace(a=[2])),
    "list of a class": (lambda: Numbers([1]), lambda: Numbers([2])),
    "counter": (lambda: Counter("ab"), lambda: Counter("aa")),
    "deque": (lambda: deque([1], 3), lambda: deque([1], 4)),
    "ordered": (lambda: OrderedDict(a=1), lambda: OrderedDict(a=2)),
    "default": (lambda: defaultdict(list), lambda: defaultdict(set)),
    "decimal": (lambda: Decimal("0.1"), lambda: Decimal("0.10")),
    "date": (lambda: date(2026, 1, 1), lambda: date(2026, 1, 2)),
    "fraction": (lambda: Fraction(1, 3), lambda: Fraction(1, 2)),
    "zero": (lambda: 0.0, lambda: -0.0),
    "kind of number": (lambda: 1, lambda: 1.0),
    "truth": (lambda: [True], lambda: [1]),
    "large integer": (lambda: 10**5000, lambda: 10**5000 + 1),
    "order of a dictionary": (lambda: {1: 2, 3: 4}, lambda: {3: 4, 1: 2}),
    "set of tuples": (lambda: {(1, "a"), (2, "b")}, lambda: {(1, "a"), (2, "c")}),
    "range": (lambda: range(3), lambda: range(4)),
    "slice": (lambda: slice(3), lambda: slice(4)),
    "mask": (lambda: np.ma.array([1, 2], mask=[0, 1]), lambda: np.ma.array([1, 2], mask=[1, 0])),
    "objects in an array": (lambda: np.array([[1], None], object), lambda: np.array([[2], None], object)),
    "records": (lambda: np.zeros(2, [("a", "f4"), ("b", "i8")]), lambda: np.zeros(2, [("a", "f4"), ("c", "i8")])),
    "order in memory": (lambda: np.zeros((2, 3)), lambda: np.zeros((2, 3), order="F")),
    "type of an array": (lambda: np.zeros(2, "f4"), lambda: np.zeros(1, "f8")),
    "lock": (threading.Lock, lambda: (found := threading.Lock()).acquire() and found),
    "function attribute": (lambda: with_attribute(1), lambda: with_attribute(2)),
    "partial": (lambda: functools.partial(max, 1, key=abs), lambda: functools.partial(max, 1, key=len)),
    "method": (lambda: Plain(lr=1).__init__, lambda: Plain(lr=2).__init__),
    "ufunc of one's own": (lambda: np.vectorize(lambda x: x + 1), lambda: np.vectorize(lambda x: x + 2)),
}  # fmt: skip


def with_attribute(factor):
    def g(x):
        return g.factor * x

    g.factor = factor
    return g


@pytest.mark.parametrize("name", STATES)
def test_another_state_of_an_object_is_another_function(name):
    one, other = STATES[name]
    assert function_digest(of_value(one())) == function_digest(of_value(one())) != function_digest(of_value(other()))
    assert function_digest(of_value([{"inside": one()}])) != function_digest(of_value([{"inside": other()}]))


def test_another_state_of_what_pytorch_has_is_another_function():
    torch = pytest.importorskip("torch")

    def layer(value, *, grad=False, train=True):
        model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(0.1)).train(train)
        with torch.no_grad():
            [parameter.fill_(value) for parameter in model.parameters()]
        torch.manual_seed(0)
        if grad:
            model(torch.ones(1, 2)).sum().backward()
        return model

    def adam(steps):
        model = layer(1.0, grad=True)
        made = torch.optim.Adam(model.parameters())
        [made.step() for _ in range(steps)]
        return made

    def seeded(seed):
        return torch.Generator().manual_seed(seed)

    states = [lambda: layer(1.0), lambda: layer(2.0), lambda: layer(1.0, grad=True), lambda: layer(1.0, train=False),
              lambda: torch.ones(2), lambda: torch.zeros(2), lambda: torch.ones(2, dtype=torch.float64),
              lambda: torch.ones(2, requires_grad=True), lambda: adam(0), lambda: adam(1), lambda: adam(2),
              lambda: seeded(1), lambda: seeded(2), lambda: torch.eye(2).to_sparse(), lambda: torch.ones(2).bfloat16(),
              lambda: torch.nn.functional.relu, lambda: torch.nn.functional.gelu, lambda: torch.relu,
              lambda: torch.float32, lambda: torch.float16]  # fmt: skip
    digests = [function_digest(of_value(make())) for make in states]
    assert len(set(digests)) == len(states)
    assert digests == [function_digest(of_value(make())) for make in states]
    with pytest.raises(ValueError, match=r"<lambda> uses \.?value, which is a tensor that an operation made"):
        function_digest(of_value(torch.ones(2, requires_grad=True) * 2))


@pytest.mark.parametrize("one, other", [
    ("FACTOR = {}\ndef f(x): return FACTOR * x", None),
    ("def f(x, factor={}): return factor * x", None),
    ("def f(x, *, factor={}): return factor * x", None),
    ("def g(x): return {} * x\ndef f(x): return g(x)", None),
    ("def g(x): return {} * x\nf = lambda x: g(x)", None),
    ("def make():\n    factor = {}\n    return lambda x: factor * x\nf = make()", None),
    ("class A:\n    lr = {}\n    def __call__(self, x): return self.lr * x\nf = A()", None),
    ("class A:\n    def run(self, x): return {} * x\nclass B(A): pass\nf = B().run", None),
    ("class A:\n    @staticmethod\n    def g(x): return {} * x\ndef f(x): return A.g(x)", None),
    ("class A:\n    @classmethod\n    def g(cls, x): return {} * x\ndef f(x): return A.g(x)", None),
    ("class A:\n    @property\n    def g(self): return {}\na = A()\ndef f(x): return a.g * x", None),
    ("class M(type):\n    def g(cls): return {}\nclass A(metaclass=M): pass\ndef f(x): return A.g() * x", None),
    ("class A:\n    def g(self): return {}\nclass B(A):\n    def g(self): return super().g()\nb = B()\n"
     "def f(x): return b.g()", None),
    ("from dataclasses import dataclass\n@dataclass\nclass A:\n    lr: float = {}\ndef f(x): return A().lr", None),
    ("from enum import Enum\nclass A(Enum):\n    lr = {}\ndef f(x): return A.lr.value", None),
    ("from functools import singledispatch\n@singledispatch\ndef g(x): return 0\n@g.register\n"
     "def _(x: int): return {}\ndef f(x): return g(x)", None),
    ("from functools import lru_cache\n@lru_cache\ndef g(x): return {} * x\ndef f(x): return g(x)", None),
    ("def f(x): return x\nf.factor = {}", None),
    ("class T:\n    def __init__(self): self.n = {}\n    def add(self, x): return self.n + x\n"
     "table = T()\ndef f(x): return table.add(x)", None),
    ("seen = {{{}}}\ndef f(x):\n    seen.add(x)\n    return max(seen)", None),
    ("scale = {}\ndef f(x):\n    class A: scale = {{}}\n    A.scale.update(a=1)\n    return scale * x", None),
    ("scale = {}\ndef f(x):\n    def g():\n        scale = {{}}\n        def h(): scale.update(a=1)\n        return h\n"
     "    g()()\n    return scale * x", None),
    ("n = {}\ndef f(x):\n    global n\n    n += 1\n    return n * x", None),
    ("log = [{}]\ndef f(x):\n    log.append(x)\n    return log[0]", None),
    ("def f(x): return [y for y in range(x) if y > {}]", None),
    ("def f(x):\n    try: return 1 / x\n    except ZeroDivisionError: return {}", None),
    ("def f(a, b): return a - b", "def f(b, a): return a - b"),
    ("def f(a, *, b, c): return b - c + a", "def f(a, *, c, b): return b - c + a"),
    ("def f(a, *b): return b", "def f(a, b): return b"),
    ("def f(x):\n    try: y = x\n    except ValueError: y = 1\n    return y",
     "def f(x):\n    try: y = x\n    except TypeError: y = 1\n    return y"),
    ("def f(x): return 0.0 * x", "def f(x): return -0.0 * x"),
    ("def f(x): return 1 * x", "def f(x): return 1.0 * x"),
    ("def f(x): return x in {1, 2}", "def f(x): return x in {1, 3}"),
    ("def f(x): return np.sin(x)", "def f(x): return np.cos(x)"),
    ("def f(a, b):\n    def g(): return a - b\n    return g()",
     "def f(b, a):\n    def g(): return a - b\n    return g()"),
], ids=str)  # fmt: skip
def test_a_change_of_the_result_changes_the_digest(one, other):
    texts = (one.format(1), one.format(2)) if other is None else (one, other)
    first, again, changed = (function_digest(program(text)) for text in (texts[0], texts[0], texts[1]))
    assert first == again != changed


@pytest.mark.parametrize("one, other", [
    ("def f(x): return 2 * x", "def f(x):\n\n    # twice\n    return (2 *  x)"),
    ("def f(x):\n    y = 2\n    return y * x", "def f(x):\n    z = 2\n    return z * x"),
    ("def f(x): return x in {'a', 'b', 'c'}", "def f(x): return x in {'c', 'b', 'a'}"),
    ("names = {'a', 'b', 'c'}\ndef f(x): return x in names", "names = {'c', 'b', 'a'}\ndef f(x): return x in names"),
    ("met = []\ndef f(x):\n    met.append(x)\n    return x", "met = [1]\ndef f(x):\n    met.append(x)\n    return x"),
    ("met = {}\ndef f(x):\n    met[x] = 1\n    return x", "met = {1: 2}\ndef f(x):\n    met[x] = 1\n    return x"),
    ("n = 0\ndef f(x):\n    global n\n    n += 1\n    return x",
     "n = 5\ndef f(x):\n    global n\n    n += 1\n    return x"),
    ("other = 1\ndef f(x): return x", "other = 2\ndef f(x): return x"),
    ("def f(x): return x", "import logging\ndef f(x): return x\nlog = logging.getLogger('a')"),
], ids=str)  # fmt: skip
def test_a_change_without_effect_does_not_change_the_digest(one, other):
    assert function_digest(program(one)) == function_digest(program(other))


@pytest.mark.parametrize("value, message", [
    (lambda: open(__file__), r"f uses \.?value, which is the open file .*Instead give the path, and open it inside"),
    (lambda: (x for x in [1]), r"f uses \.?value, which is a generator .*cannot pickle.*Instead create it inside"),
    (lambda: threading.local(), r"f uses \.?value, which is a _thread\._local"),
    (lambda: np.frompyfunc(lambda x: x, 1, 1), r"f uses \.?value, which is a numpy\.ufunc of no module"),
    (lambda: sys._getframe(), r"f uses \.?value, which is a frame"),
])  # fmt: skip
def test_values_that_cannot_be_read_are_refused_by_name(value, message):
    made = value()
    f = program("def f(seed): return value", value=made)
    try:
        with pytest.raises(ValueError, match=message):
            function_digest(f)
        with pytest.raises(ValueError, match=message.replace(r"\.?value", r"\.?value\[0\]\.a")):
            function_digest(program("def f(seed): return value", value=[types.SimpleNamespace(a=made)]))
    finally:
        getattr(made, "close", lambda: None)()


@pytest.mark.parametrize("call", ["eval('1')", "globals()['x']", "exec('x = 1')", "__import__('os')",
                                  "sys.modules['os']", "importlib.import_module('os')"])  # fmt: skip
def test_a_function_that_reaches_names_by_text_is_refused(call):
    with pytest.raises(ValueError, match=rf"f uses {call.partition('(')[0].partition('[')[0]}, which is .*the names"):
        function_digest(program(f"import sys, importlib\ndef f(seed): return {call}"))


def test_without_a_folder_nothing_has_to_be_read(tmp_path):
    with open(tmp_path / "log", "w") as log:

        def function(seed):
            log.write("met")
            return seed

        assert sf.studies.sweep(function, {"seed": [1]})["value"] == [1]
        with pytest.raises(ValueError, match="function uses log, which is the open file"):
            sf.studies.sweep(function, {"seed": [1]}, folder=tmp_path / "out")
        with pytest.raises(ValueError, match="<lambda> uses function.log, which is the open file"):
            sf.search(lambda policy, seed: function(1.0), folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_module_that_was_reloaded_is_another_function(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source, helper = tmp_path / "a_study_of_mine.py", tmp_path / "a_helper_of_mine.py"
    helper.write_text("LOSS = 1.0\ndef twice(x): return 2 * x\n")
    source.write_text("import a_helper_of_mine\ndef f(seed): return a_helper_of_mine.twice(seed)\n")
    study = importlib.import_module("a_study_of_mine")
    axes, folder = {"seed": [1, 2]}, tmp_path / "out"
    assert sf.studies.sweep(study.f, axes, folder=folder)["value"] == [2, 4]
    helper.write_text("LOSS = 1.0\ndef twice(x): return 20 * x  # now by ten\n")
    importlib.reload(study.a_helper_of_mine)
    assert sf.studies.sweep(study.f, axes, folder=folder)["value"] == [20, 40]
    source.write_text("import a_helper_of_mine\ndef f(seed): return a_helper_of_mine.twice(seed) + 1\n")
    importlib.reload(study)
    assert sf.studies.sweep(study.f, axes, folder=folder, workers=1)["value"] == [21, 41]
    study.a_helper_of_mine.twice = lambda x: 5
    with pytest.raises(sf.studies.JobError, match=r"a_study_of_mine\.f computes something else in another process"):
        sf.studies.sweep(study.f, axes, folder=folder, workers=1)
    assert sf.studies.sweep(study.f, axes, folder=folder)["value"] == [6, 6]
    for name in ("a_study_of_mine", "a_helper_of_mine"):
        monkeypatch.delitem(sys.modules, name)


def test_a_search_confirms_nothing_of_another_state(tmp_path):
    table = Plain(lost=0.0)
    table.add = lambda x: x

    def train(policy, seed):
        table.add(seed)
        return 1.0 + table.lost * (policy.recipe().activations.precision < 8)

    arguments = {"parts": ["activations"], "formats": (sf.E4M3, sf.BF16), "seeds": range(3), "folder": tmp_path}
    assert sf.search(train, **arguments).label == "activations=E4M3"
    table.lost = 0.5
    assert sf.search(train, **arguments).label == "activations=BF16"


PROGRAM = """
import sys; sys.path.insert(0, {root!r})
from tests.studies.test_state_digest import STATES, of_value
from simfloat.studies.state_digest import function_digest
names = {{"b", "a", "c"}}
class Model:
    layers = frozenset({{"x", "y", ("z", 1)}})
    def run(self, seed): return seed in self.layers or str(seed) in names
print([function_digest(of_value(one())) for one, other in STATES.values()] + [function_digest(Model().run)])
"""


def test_a_digest_is_the_same_in_every_process(capsys):
    program = PROGRAM.format(root=str(ROOT))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", program]
    there = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    exec(program, {"__name__": "__main__"})
    assert there.stdout and there.stdout == capsys.readouterr().out, there.stderr
