"""Pieces of long sums change no bits, are counted for the progress line, and stop if one of them fails."""

import time
from functools import partial

import numpy as np
import pytest

import simfloat as sf
from simfloat.sums import contraction
from simfloat.sums.contraction import Metered, progress_bar
from simfloat.terminal import reserve_line, status
from tests.test_status_line import on_terminal, wait_for

R = np.random.default_rng(20)


def watched(monkeypatch):
    """A terminal on which everything takes long, and is cut into pieces of a few products."""
    monkeypatch.setattr(contraction, "LEAST_WATCHED_WORK", 0.0)
    monkeypatch.setattr(contraction, "PIECE_WORK", 200.0)
    return on_terminal(monkeypatch)


def counted_pieces(monkeypatch):
    """The products of each piece that is summed from here on."""
    counted = []
    run = Metered.run

    def counting(self, *arguments):
        before = len(self.done)
        run(self, *arguments)
        counted.extend(self.done[before:])

    monkeypatch.setattr(Metered, "run", counting)
    return counted


ACCUMULATORS = [
    sf.sequential(sf.FP16), sf.sequential(sf.BF16, rounding=sf.stochastic(bits=8)),
    sf.sequential(sf.Format(8, 20), products=sf.FP16, rounding=sf.to_odd), sf.sequential(sf.FP64), sf.kahan(sf.FP16),
    sf.pairwise(sf.BF16), sf.blocked(16, sf.FP16, sf.FP32), sf.blocked(16, sf.kahan(sf.FP16), sf.kahan(sf.FP16)),
    sf.lanes(4, sf.FP16, sf.pairwise(sf.FP16)), sf.fused(8, 12), sf.tensor_core("hopper", sf.FP16),
    sf.tensor_core("hopper", sf.E4M3), sf.matrix_core("cdna2", sf.FP16),
]  # fmt: skip


def computed(accumulate):
    a, b = np.random.default_rng(1).standard_normal((2, 5, 9, 40))
    options = {"accumulate": accumulate, "inputs": sf.E4M3}
    draws = any(mode.is_stochastic for mode in accumulate.roundings)
    new = (lambda: {"stream": sf.BitStream(3)}) if draws else dict
    yield sf.matmul(a[0], b[0].T, **options, **new())
    yield sf.matmul(a, b.swapaxes(1, 2), **options, **new())
    yield sf.matmul(a.reshape(45, 40), b[0, 0], **options, **new())
    yield sf.dot(a[0].ravel(), b[0].ravel(), **options, **new())
    yield sf.sum(a, axis=1, **options, **new())
    if accumulate.takes_initial:
        yield sf.dot(a[0].ravel(), b[0].ravel(), initial=-3.0, **options, **new())
    yield sf.conv2d(a[:1, None], b[:4, None, :3, :3], **options, **new())


@pytest.mark.parametrize("accumulate", ACCUMULATORS, ids=str)
def test_pieces_have_the_bits_of_the_whole(accumulate, monkeypatch):
    whole = list(computed(accumulate))
    watched(monkeypatch)
    pieces = counted_pieces(monkeypatch)
    in_pieces = list(computed(accumulate))
    assert len(pieces) > len(whole), "sums are cut"
    for one, other in zip(whole, in_pieces, strict=True):
        np.testing.assert_array_equal(one.view(np.int64), other.view(np.int64))


def test_scales_of_blocks_go_with_their_rows(monkeypatch):
    a, b = R.standard_normal((9, 64)), R.standard_normal((64, 7))
    options = {"inputs": sf.scaled(sf.E4M3, sf.block(32, sf.E8M0)), "accumulate": sf.FP32}
    plain = sf.matmul(a, b, **options)
    watched(monkeypatch)
    assert np.array_equal(sf.matmul(a, b, **options), plain)


def gradient_of_kernels():
    random = np.random.default_rng(5)
    x, w = sf.Tensor(random.standard_normal((2, 3, 9, 9))), sf.nn.Parameter(random.standard_normal((4, 3, 3, 3)))
    with sf.simulate("bf16-stochastic", seed=1):
        x.conv2d(w).sum().backward()
    return w.grad


def test_gradients_of_kernels_are_in_sight_too(monkeypatch):
    plain = gradient_of_kernels()
    watched(monkeypatch)
    pieces = counted_pieces(monkeypatch)
    assert np.array_equal(gradient_of_kernels(), plain)
    assert pieces


def test_given_draws_are_taken_in_one_piece(monkeypatch):
    watched(monkeypatch)
    adder = sf.sequential(sf.FP16, rounding=sf.stochastic(bits=4))
    draws = R.integers(0, 16, 60)
    found = sf.matmul(np.full((4, 5), 0.1), np.ones((5, 3)), accumulate=adder, stream=sf.GivenBits(draws))
    for i, j in np.ndindex(4, 3):
        own = sf.GivenBits(draws[(3 * i + j) * 5 :][:5])
        assert found[i, j] == sf.dot(np.full(5, 0.1), np.ones(5), accumulate=adder, stream=own)


def test_the_bar_shows_the_share_that_is_done(monkeypatch):
    terminal = watched(monkeypatch)
    monkeypatch.setattr(contraction, "status", partial(status, patience=0.0))
    monkeypatch.setattr(contraction, "REFRESH_SECONDS", 0.001)
    monkeypatch.setattr(
        Metered, "run", slowed(Metered.run, lambda: wait_for("[##########----------] 50%, 0 s", terminal))
    )
    sf.set_threads(1)
    try:
        sf.matmul(np.ones((2, 40)), np.ones((40, 20)), accumulate=sf.FP16)
    finally:
        sf.set_threads(2)
    assert " left: 40 sums of 40 products" in terminal.getvalue()


def slowed(run, wait):
    def one(self, engine, a, b, out, region):
        for i in range(len(a)):
            run(
                self, engine, a[i : i + 1], b, out[i : i + 1], region._replace(first=region.first + i * region.row_step)
            )
            if i == len(a) // 2 - 1:
                wait()

    return one


def test_a_bar_shows_the_remaining_time_after_the_first_progress():
    assert progress_bar(0.0, 3.2) == "[--------------------] 0%, 3 s"
    assert progress_bar(0.25, 3.0) == "[#####---------------] 25%, 3 s, 9 s left"


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_in_one_piece_stops_the_others_and_frees_the_line(monkeypatch, threads):
    watched(monkeypatch)
    begun = []

    def interrupt(self):
        begun.append(1)
        if len(begun) == 3:
            raise KeyboardInterrupt
        time.sleep(0.001)

    a = np.ones((400, 40))
    before = sf.get_threads()
    pieces = Metered._pieces
    monkeypatch.setattr(
        Metered, "_pieces", lambda self, *given: (interrupt(self) or one for one in pieces(self, *given))
    )
    sf.set_threads(threads)
    try:
        with pytest.raises(KeyboardInterrupt):
            sf.matmul(a, a.T, accumulate=sf.FP16)
    finally:
        sf.set_threads(before)
    assert len(begun) < 20, "of some hundreds"
    with reserve_line() as is_own:
        assert is_own
