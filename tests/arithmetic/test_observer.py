"""What observers are told, and what is no observer."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.operations import compute
from simfloat.arithmetic.target import Target
from simfloat.kernels.events import KINDS


class Heard(sf.Observer):
    def __init__(self):
        self.calls = []

    def observe(self, events, operation, path="", phase="forward"):
        self.calls.append((operation, dict(zip(KINDS, events[: len(KINDS)].tolist(), strict=True))))


def unchanged(operation, a, b, format=sf.FP16):
    heard = Heard()
    arrays = [np.asarray(a, float), np.asarray(b, float)]
    compute(operation, arrays, Target(format, sf.nearest_even, np.float64, None, heard))
    ((told, counts),) = heard.calls
    assert told == operation
    return counts["unchanged"]


@pytest.mark.parametrize("operation, sign", [("add", 1.0), ("subtract", -1.0)])
def test_unchanged_counts_sums_that_lost_either_addend(operation, sign):
    tiny = 2.0**-20
    assert unchanged(operation, [1.0, tiny, 1.0, 0.0, tiny], [tiny, 1.0, 1.0, 1.0, 0.0]) == 2
    assert unchanged(operation, [np.inf, np.nan, 1.0], [1.0, 1.0, np.nan]) == 0, "only finite results can lose one"


def test_an_update_is_unchanged_only_if_the_second_operand_was_lost():
    tiny = 2.0**-20
    assert unchanged("update", [1.0, tiny, 0.0], [tiny, 1.0, 1.0]) == 1


def test_an_update_is_the_sum(rng):
    a, b = rng.standard_normal((2, 50))
    target = Target(sf.BF16, sf.nearest_even, np.float64)
    assert (compute("update", [a, b], target) == sf.add(a, b, sf.BF16)).all()


def test_every_call_hands_over_an_array_of_its_own():
    class Kept(sf.Observer):
        def __init__(self):
            self.events = []

        def observe(self, events, operation, path="", phase="forward"):
            self.events.append(events)

    kept = Kept()
    for _ in range(2):
        sf.round([1.0, 2.0], sf.FP16, observer=kept)
    assert kept.events[0] is not kept.events[1] and not np.shares_memory(*kept.events)
    assert kept.events[0].tolist() == kept.events[1].tolist()


@pytest.mark.parametrize("observer", [[], {}, 0, "recorder"])
def test_what_cannot_observe_is_refused_with_what_to_pass(observer):
    with pytest.raises(ValueError, match=r"a method observe, for example simfloat.Recorder\(\)"):
        sf.round(1.0, sf.FP16, observer=observer)


def test_an_observer_without_elements_is_an_observer():
    class Empty(Heard):
        def __len__(self):
            return 0

    empty = Empty()
    sf.add([1.0], [2.0], sf.FP16, observer=empty)
    assert empty.calls[0][0] == "add"
