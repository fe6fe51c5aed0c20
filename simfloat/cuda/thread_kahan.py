"""Kahan's compensated sums, a thread for every element of the result: see `kernels/kahan.py`."""

from __future__ import annotations

from simfloat.cuda.instructions import KINDS
from simfloat.cuda.thread_random import NO_WORDS, word_of, words_from
from simfloat.cuda.threads import threads_over
from simfloat.kernels.grid import unpack
from simfloat.kernels.kahan import kahan_step
from simfloat.kernels.random import are_bytes, counter_of, element_at
from simfloat.kernels.stack import row_of_left, top_of_right
from simfloat.kernels.step_kinds import KINDS_OF_ONE_FORMAT


def kahan(step, drawing):
    """The loop for steps that draw, or not, or (None) as the grid says."""

    @threads_over("out")
    def loop(t, a, b, out, numbers, sign, pair, place, seed):
        grid, counter, kind = unpack(numbers), counter_of(place), out.dtype.type
        draws, short = drawing or (drawing is None and grid.random_step != 0.0), are_bytes(grid)
        i, j = t // out.shape[1], t % out.shape[1]
        total, rest, element = out[i, j], kind(0), element_at(counter, i, j)
        row, top = row_of_left(a, i), top_of_right(a, b, out, i)
        w0, w1, w2, w3, w4 = NO_WORDS, NO_WORDS, NO_WORDS, NO_WORDS, NO_WORDS
        for k in range(a.shape[1]):
            if draws and k % 4 == 0:
                w0 = words_from(w0, counter, element, k, 0, seed, short)
                w1 = words_from(w1, counter, element, k, 1, seed, short)
                w2 = words_from(w2, counter, element, k, 2, seed, short)
                w3 = words_from(w3, counter, element, k, 3, seed, short)
                w4 = words_from(w4, counter, element, k, 4, seed, short)
            s, p, y = word_of(w0, k, short), word_of(w1, k, short), word_of(w2, k, short)
            d, c = word_of(w3, k, short), word_of(w4, k, short)
            new, lost = step(total, rest, a[row, k], b[top + k, j], grid, sign, pair != 0, s, p, y, d, c)
            total, rest = kind(new), kind(lost)
        out[i, j] = total

    return loop


loops = {
    name: kahan(kahan_step(kind.product, kind.add), kind.draws) for name, kind in (KINDS_OF_ONE_FORMAT | KINDS).items()
}
