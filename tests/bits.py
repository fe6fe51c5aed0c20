"""Comparing results bit for bit, and numbers that are hard to round."""

import numpy as np

import simfloat as sf
from simfloat.tools.selftest import checks
from simfloat.tools.selftest.checks import adversarial, equal_bits

__all__ = ["CUSTOM", "DETERMINISTIC", "FORMATS", "adversarial", "assert_all_bits", "assert_bits", "equal_bits"]

#: The deterministic modes, and of those without steps on lanes, which take the same loops, only one.
DETERMINISTIC = tuple(mode for mode in checks.DETERMINISTIC if mode.steps or mode == sf.nearest_down)

#: Beyond the catalog: P3109, one significand bit, no sign, no subnormals, exponents up to float64's ends.
CUSTOM = (
    *(sf.p3109(8, p, s, e) for p in (1, 3, 4) for s in (True, False) for e in (True, False)),
    sf.Format(4, 0, special="finite"),
    sf.Format(5, 0, special="fn"),
    *(sf.Format(5, 3, subnormals=False, tininess=tininess) for tininess in ("after_rounding", "before_rounding")),
    sf.Format(5, 0, special="fn", subnormals=False),
    sf.Format(5, 2, signed=False),
    sf.Format(3, 2, special="finite", signed=False),
    sf.Format(4, 2, special="fn", signed=False, subnormals=False),
    sf.Format(8, 7, bias=100),
    sf.Format(6, 9, bias=-900),
    sf.Format(6, 9, bias=1000),
    sf.Format(11, 20),
    sf.Format(11, 49),
    sf.Format(10, 51),
    sf.Format(10, 52),
    sf.Format(2, 1, bias=-970),
    sf.Format(3, 0, special="fn", bias=-969),
)

FORMATS = (*sf.CATALOG.values(), *CUSTOM)


def assert_bits(got, want, *inputs, of=""):
    """Fail with the first differing element and its inputs, as hexadecimal floats, and the words that name a case."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, (of, got.shape, want.shape)
    wrong = ~equal_bits(got, want)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        operands = [float(np.broadcast_to(x, got.shape)[place]).hex() for x in inputs]
        raise AssertionError(
            f"{of}: {wrong.sum()} of {wrong.size} differ, first at {place}: got {float(got[place]).hex()}, "
            f"want {float(want[place]).hex()}, inputs {operands}"
        )


def assert_all_bits(got, want, of=""):
    """Require equal numbers of arrays, with the same bits."""
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert_bits(a, b, of=f"{of} [{number}]")
