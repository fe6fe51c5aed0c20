"""Programs by all machines: whether their traces are equal, bit for bit."""

import numpy as np

import simfloat as sf
from tests.bits import equal_bits
from tests.properties.machines import Tensors


class Partial(sf.Recorder):
    """A recorder that wants the counts of one path and phase alone."""

    def wants(self, path, phase):
        return path.startswith("a") and phase != "forward"


def first_difference(got, want, ignored=()):
    """The first entry that differs in two traces, as text; None if there is none."""
    got, want = ([(what, value) for what, value in one if what.split(" ", 1)[1] not in ignored] for one in (got, want))
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
    others = {
        "again": lambda: Tensors(program),
        "observed": lambda: Tensors(program, sf.Recorder()),
        "partly observed": lambda: Tensors(program, Partial()),
    }
    for name, make in others.items():
        if (what := first_difference(make().run(), want)) is not None:
            return f"{name}: {what}"
    return None
