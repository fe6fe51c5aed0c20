"""Functions of 16-bit numbers are read from a table after many calls, with the same bits."""

from itertools import cycle, product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import plan
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.sources import BFLOAT16, FLOAT16, MOST_TABLES, SIZE, FunctionTable, LookedUp, route_of
from simfloat.formats.rounding import as_rounding
from tests.bits import DETERMINISTIC, assert_bits

#: Functions that are tested; a table does not depend on what it is made of.
TABLED = "exp gelu tanh rsqrt sqrt log".split()

NAMES = [name for name, row in FUNCTIONS.items() if len(row.operands) == 1]
OPERANDS = {"BF16": BFLOAT16.numbers(), "FP16": FLOAT16.numbers()}


def tables_of(name, format, mode="nearest_even"):
    return route_of(name, format, as_rounding(mode), True, CPU).tables


@pytest.fixture(autouse=True)
def no_tables():
    """Tables of other tests are forgotten, so that the first call here computes."""
    for table in FunctionTable.tables_in_memory:
        table.results = None
    FunctionTable.tables_in_memory.clear()
    for name in NAMES:
        for format in (sf.BF16, sf.FP16, sf.E4M3, sf.FP32):
            for mode in DETERMINISTIC:
                for table in tables_of(name, format, mode):
                    table.elements_before_look = SIZE


@pytest.mark.parametrize("operands", OPERANDS)
def test_all_numbers_of_16_bits_have_the_results_that_were_computed(operands):
    x, formats = OPERANDS[operands], (sf.BF16, sf.FP16, sf.E4M3, sf.FP32)
    for name, (format, mode) in product(TABLED, zip(cycle(formats), DETERMINISTIC, strict=False)):
        computed = getattr(sf, name)(x, format, mode)
        assert_bits(getattr(sf, name)(x, format, mode), computed, x)
        is_tabled = route_of(name, format, as_rounding(mode), True, CPU).source is LookedUp
        assert any(table.results is not None for table in tables_of(name, format, mode)) == is_tabled


@pytest.mark.parametrize("operands", OPERANDS)
def test_one_other_number_is_enough_to_compute_all(operands):
    numbers = np.resize(OPERANDS[operands], SIZE + 77)
    for _ in range(2):
        sf.gelu(numbers, sf.BF16)
    for place in (0, 1023, 1024, -1):
        x = numbers.copy()
        x[place] = np.float32(0.1)
        with np.errstate(invalid="ignore"):  # signalling NaN
            wide = x.astype(np.float64)
        assert_bits(sf.gelu(x, sf.BF16), sf.gelu(wide, sf.BF16).astype(np.float32), x)


def test_threads_share_the_work_wherever_no_table_serves(rng, monkeypatch):
    pieces, carry_out = [], plan.run_all

    def counted(work, parts):
        pieces.append(len(parts))
        return carry_out(work, parts)

    monkeypatch.setattr(plan, "run_all", counted)
    before = sf.get_threads()
    try:
        sf.set_threads(2)
        short = sf.round(rng.standard_normal(2 * SIZE), sf.BF16).astype(np.float32)
        others = rng.standard_normal(2 * SIZE).astype(np.float32)
        halves = np.concatenate([short[:SIZE], others[SIZE:]])
        # Two threads: no table yet, numbers that it does not hold, a table that is not looked at for a while.
        for x, waits, count in ((short, SIZE, 2), (short, 0, 1), (others, 0, 2), (halves, 0, 2), (short, SIZE, 2)):
            for table in tables_of("gelu", sf.BF16):
                table.elements_before_look = waits
            pieces.clear()
            got = sf.gelu(x, sf.BF16)
            assert sum(pieces) == (count if count > 1 else 0), "one piece takes no thread"
            assert_bits(got, sf.gelu(x.astype(np.float64), sf.BF16).astype(np.float32))
    finally:
        sf.set_threads(before)


def test_numbers_of_other_formats_make_no_tables(rng):
    x = rng.standard_normal(3 * SIZE).astype(np.float32)
    for _ in range(3):
        sf.tanh(x, sf.BF16)
    assert not FunctionTable.tables_in_memory


def test_observers_receive_the_events_of_computing():
    x = OPERANDS["BF16"]
    counts = []
    for _ in range(3):
        observer = sf.Recorder()
        sf.exp(x, sf.FP16, observer=observer)
        counts.append(observer.entries()[0][1].tolist())
        sf.exp(x, sf.FP16)
    assert counts[0] == counts[1] == counts[2]


def test_kept_tables_are_bounded():
    x = OPERANDS["BF16"]
    made = [sf.Format(5, fraction) for fraction in range(1, 11)]
    for format in made:
        for name, _ in product(NAMES[:8], range(2)):
            getattr(sf, name)(x, format)
    assert len(FunctionTable.tables_in_memory) == MOST_TABLES
    assert sum(t.results is not None for f in made for name in NAMES[:8] for t in tables_of(name, f)) <= MOST_TABLES


def test_stochastic_results_have_no_tables():
    assert not tables_of("exp", sf.BF16, "stochastic(bits=32)")
