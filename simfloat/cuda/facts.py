"""How many bits the numbers of an array have: see `kernels/facts.py`. To read the facts is to wait for the GPU."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.loop import threads_over
from simfloat.cuda.shared import join_at, lower_at, raise_at
from simfloat.kernels.facts import NO_FIRST, NO_LAST, facts_from, fields_of

#: Elements that a thread looks at, one after the other.
EACH = 64

FRACTIONS, FIRST, LAST, SPECIAL = range(4)


@threads_over("x", each=EACH)
def _look(j, x, threads, found):
    fractions, first, last, special = np.int64(0), np.int64(NO_FIRST), np.int64(NO_LAST), np.int64(0)
    for i in range(j, x.size, threads):
        field, fraction = fields_of(x[i])
        special |= np.int64(field == 2047)
        if field < 2047 and x[i] != 0.0:
            fractions |= np.int64(fraction)
            first, last = min(first, field), max(last, field)
    join_at(found, FRACTIONS, fractions)
    join_at(found, SPECIAL, special)
    lower_at(found, FIRST, first)
    raise_at(found, LAST, last)


def bit_facts(x):
    """(precision, low, least, high, finite) of a vector."""
    found = np.array([0, NO_FIRST, NO_LAST, 0], np.int64, like=x)
    _look(x, -(-x.size // EACH), found)
    counts = found.get()
    return facts_from(np.uint64(counts[FRACTIONS]), counts[FIRST], counts[LAST], counts[SPECIAL] == 0)
