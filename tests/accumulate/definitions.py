"""Sums as the contract words them, one exact operation after the other, on Python numbers."""

from __future__ import annotations

from tests.reference import operate, words_at_python


class Arithmetic:
    """Rounded operations of one element of a result, with the draws of its stochastic steps."""

    def __init__(self, format, rounding, element=0, seed=0, call=0, stage=1, step=0):
        self.format, self.rounding, self.place = format, rounding, (element, seed, call, stage, step)

    def __call__(self, operation, *operands, step, stage):
        element, seed, call, first_stage, first_step = self.place
        random = 0
        if self.rounding.is_stochastic:
            words = words_at_python(element, first_step + step, call, first_stage + stage, seed)
            random = words[(first_step + step) % 4] >> (32 - self.rounding.bits)
        return operate(operation, self.format, self.rounding, *operands, random=random)


def pairwise_dot(a, b, format, rounding, **place):
    """Level by level; the sum whose right part starts with product k draws step k."""
    do = Arithmetic(format, rounding, **place)
    nodes = [(k, do("multiply", x, y, step=k, stage=1)) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    while len(nodes) > 1:
        pairs = [
            (nodes[i][0], do("add", nodes[i][1], nodes[i + 1][1], step=nodes[i + 1][0], stage=0))
            for i in range(0, len(nodes) - 1, 2)
        ]
        nodes = pairs + nodes[len(nodes) - len(nodes) % 2 :]
    return nodes[0][1] if nodes else 0.0


def kahan_dot(a, b, format, rounding, **place):
    """p = ab, y = p - c, t = s + y, c = (t - s) - y, s = t."""
    do = Arithmetic(format, rounding, **place)
    s = c = 0.0
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        p = do("multiply", x, y, step=k, stage=1)
        y = do("subtract", p, c, step=k, stage=2)
        t = do("add", s, y, step=k, stage=0)
        c = do("subtract", do("subtract", t, s, step=k, stage=3), y, step=k, stage=4)
        s = t
    return s
