"""Rounding modes: which of a format's numbers is chosen for a number that the format does not have."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeAlias

from simfloat.common import hashed_once, store_as_pythons

HALF = Fraction(1, 2)

#: Parts of a spacing from which on a mode may choose the neighbour farther from zero, beside 0 and HALF: what lies
#: above a half, for ties that go toward zero, and none. What is cut off has fewer bits than a float64, so none of its
#: parts lies between HALF and ABOVE_HALF.
ABOVE_HALF, NEVER = math.nextafter(0.5, 1.0), 2.0

#: Parts of a spacing at which a mode shows what it does between zero and a half, and, taken from one, above a half.
BELOW_HALF = (Fraction(1, 2**64), Fraction(1, 4), HALF - Fraction(1, 2**64))
UPPER_HALF = tuple(1 - part for part in BELOW_HALF)


class ModeRule(NamedTuple):
    """A deterministic mode, defined on magnitudes: the one row from which all facts of the mode follow.

    `away(rest, odd, negative)` tells whether the neighbour farther from zero is chosen: `rest` is the part of a spacing
    by which the magnitude exceeds the other one, `odd` whether that one is odd. Kernels know modes that begin to choose
    it at any part, at a half, above a half, or never.

    `steps` names what rounds so on lanes of float32, in the images of a GPU's numbers and in aligned terms:
    `kernels/lanes/operations.py` and `kernels/units/aligned.py`. A mode without it is rounded by loops that serve all
    modes.
    """

    away: Callable[[Fraction, bool, bool], bool]
    steps: str = ""
    stops: tuple[bool, bool] = (False, False)  # whether a positive, a negative overflow stays at the largest number
    zero_sum: float = 1.0  # the sign of x - x
    instruction: str = ""  # the suffix of the instructions of a GPU that round FP32 so: PTX ISA 9.7.3


#: The modes of IEEE 754-2019 section 4.3, and rounding to odd. Overflow: section 7.4. Zero sums: section 6.3.
MODES = {
    "nearest_even": ModeRule(lambda rest, odd, negative: rest > HALF or (rest == HALF and odd), "nearest"),
    "nearest_away": ModeRule(lambda rest, odd, negative: rest >= HALF, "away"),
    "toward_zero": ModeRule(lambda rest, odd, negative: False, "truncated", stops=(True, True), instruction="rz"),
    "toward_positive": ModeRule(
        lambda rest, odd, negative: rest > 0 and not negative, "upward", stops=(False, True), instruction="rp"
    ),
    "toward_negative": ModeRule(
        lambda rest, odd, negative: rest > 0 and negative, "downward", (True, False), zero_sum=-1.0, instruction="rm"
    ),
    "to_odd": ModeRule(lambda rest, odd, negative: rest > 0 and not odd, "sticky", stops=(True, True)),
}

#: Steps that terms can be aligned by: `kernels/units/aligned.py`.
ALIGNING = ("truncated", "nearest", "sticky")

VARIANTS = ("A", "B", "C")

#: What the modes are called elsewhere, without "round", in letters alone: by IEEE 754, C, MPFR, Python's decimal, Java,
#: RISC-V and Berkeley TestFloat. An unknown text is answered with the mode of that name.
USUAL_NAMES = {
    "nearest_even": "near nearest nearesteven toeven tonearest tonearesteven rn rne rnte rtne rte ne even halfeven "
    "rint tiestoeven nearesttiestoeven halftoeven banker bankers rneareven neareven rndn half",
    "nearest_away": "rna rnta rmm away tiestoaway nearestaway nearesttiestoaway halfup halfaway halfawayfromzero "
    "rnearmaxmag nearmaxmag rndna ties",
    "toward_zero": "trunc truncate truncated truncation chop chopping chopped rz rtz zero tozero towardzero "
    "towardszero fix minmag rminmag rndz cut",
    "toward_positive": "up upward upwards ru rup rtp rpi ceil ceiling positive topositive towardpositive "
    "towardinfinity towardpositiveinfinity towardplusinfinity max rmax rndu",
    "toward_negative": "down downward downwards rd rdn rtn rni floor negative tonegative towardnegative "
    "towardnegativeinfinity towardminusinfinity min rmin rndd",
    "to_odd": "odd ro rto toodd rodd jam jamming vonneumann sticky inexact",
    "stochastic(bits=32)": "stochastic sr random randomly stochastically stoch probabilistic",
}


class Away(NamedTuple):
    """From which part of a spacing on a mode chooses the neighbour farther from zero, by the other one and the sign."""

    positive: float
    negative: float
    odd_positive: float
    odd_negative: float


@cache
def first_parts(away: Callable[[Fraction, bool, bool], bool]) -> Away:
    """The parts that follow from the rule of a mode; ValueError for a rule that kernels do not know."""
    return Away(*(_first_part(away, odd, negative) for odd in (False, True) for negative in (False, True)))


def _first_part(away: Callable[[Fraction, bool, bool], bool], odd: bool, negative: bool) -> float:
    chosen = [bool(away(part, odd, negative)) for part in (*BELOW_HALF, HALF, *UPPER_HALF)]
    first = {7: 0.0, 4: float(HALF), 3: ABOVE_HALF, 0: NEVER}.get(sum(chosen))
    if first is None or chosen != sorted(chosen):
        raise ValueError(
            "A mode must choose the neighbour farther from zero for all parts of a spacing, from a half on, above a "
            f"half, or never; {'below' if negative else 'above'} zero, next to an {'odd' if odd else 'even'} number, "
            "this one does not."
        )
    return first


@hashed_once
@dataclass(frozen=True)
class Rounding:
    """A rounding mode. Use the constants of this module and :func:`stochastic` rather than the constructor.

    mode is one of MODES, or ``"stochastic"`` with its number of random `bits` and its `variant`. With ``saturates``
    overflow is clamped to +-max.

    Examples:
        >>> sf.round(1e6, sf.FP16, sf.nearest_even)
        array(inf)
        >>> sf.round(1e6, sf.FP16, sf.nearest_even.saturating())
        array(65504.)
    """

    mode: str
    bits: int = 0
    variant: str = ""
    saturates: bool = False

    def __post_init__(self) -> None:
        store_as_pythons(self)
        if self.mode == "stochastic":
            _check_stochastic(self.bits, self.variant)
        elif not isinstance(self.mode, str) or self.mode not in MODES:
            raise ValueError(f"Unknown rounding mode {self.mode!r}; modes: {', '.join(MODES)}, stochastic.")
        elif self.bits or self.variant:
            raise ValueError(f"{self.mode} takes no random bits and no variant; use stochastic(bits=..., variant=...).")
        if not isinstance(self.saturates, bool):
            raise ValueError(f"saturates must be True or False, got {self.saturates!r}.")

    @property
    def is_stochastic(self) -> bool:
        """Whether the mode draws random bits, and so needs a stream."""
        return self.mode == "stochastic"

    @property
    def zero_sum(self) -> float:
        """1.0 or -1.0, the sign of an exact zero sum of unlike signs."""
        return 1.0 if self.is_stochastic else MODES[self.mode].zero_sum

    def stops(self, negative: bool) -> bool:
        """Whether a finite result beyond the largest number stays there: the mode saturates or points back inside."""
        return self.saturates or (not self.is_stochastic and MODES[self.mode].stops[negative])

    @property
    def is_to_nearest(self) -> bool:
        """Whether the nearer neighbour is always chosen, however ties are broken."""
        return not self.is_stochastic and set(self.away) <= {HALF, ABOVE_HALF}

    @property
    def is_toward_zero(self) -> bool:
        """Whether the neighbour nearer to zero is always chosen."""
        return not self.is_stochastic and set(self.away) == {NEVER}

    @property
    def away(self) -> Away:
        """From which part of a spacing on the neighbour farther from zero is chosen, in a deterministic mode."""
        return first_parts(MODES[self.mode].away)

    @property
    def reads_odd(self) -> bool:
        """Whether the choice depends on which of the two neighbours is odd."""
        return not self.is_stochastic and self.away[:2] != self.away[2:]

    @property
    def steps(self) -> str:
        """The name of what rounds so on lanes, in images and in aligned terms; nothing where there is none."""
        return "" if self.is_stochastic else MODES[self.mode].steps

    @property
    def instruction(self) -> str:
        """The suffix of the instructions of a GPU that round FP32 so, or nothing."""
        return "" if self.is_stochastic or self.saturates else MODES[self.mode].instruction

    @property
    def aligns(self) -> bool:
        """Whether fused sums can align their terms so."""
        return not self.saturates and self.steps in ALIGNING

    def saturating(self) -> Rounding:
        """Return this mode with overflow clamped to +-max, infinite operands and results included."""
        return self._saturating

    @cached_property
    def _saturating(self) -> Rounding:
        """Kept, with its hash: every scaled cast rounds so."""
        return replace(self, saturates=True)

    def __repr__(self) -> str:
        text = f"stochastic(bits={self.bits}, variant={self.variant!r})" if self.is_stochastic else self.mode
        return text + ".saturating()" if self.saturates else text

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)


def _check_stochastic(bits: int, variant: str) -> None:
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= 32:
        raise ValueError(f"stochastic rounding takes 1 to 32 random bits, got bits={bits!r}.")
    if variant not in VARIANTS:
        raise ValueError(f"variant must be 'A', 'B' or 'C' (IEEE P3109), got {variant!r}.")


nearest_even = Rounding("nearest_even")
nearest_away = Rounding("nearest_away")
toward_zero = Rounding("toward_zero")
toward_positive = Rounding("toward_positive")
toward_negative = Rounding("toward_negative")
to_odd = Rounding("to_odd")


def stochastic(bits: int = 32, variant: str = "C") -> Rounding:
    """Round up or down at random, up with a probability that is the distance from below, to `bits` bits.

    With N = bits and R uniform in [0, 2^N), a number that lies nu of the way between its neighbours in
    magnitude goes to the larger one when

    * variant A: floor(nu 2^N) + R >= 2^N (biased toward zero by 2^-(N+1) of the gap);
    * variant B: floor(nu 2^(N+1)) + 2R + 1 >= 2^(N+1);
    * variant C: round-to-even(nu 2^N) + R >= 2^N (unbiased over a uniform nu).

    Source: IEEE P3109 interim report 4.0, section 4.7.4 (StochasticA, B, C).

    Examples:
        >>> draws = sf.round(np.full(10_000, 0.125), sf.E2M1, sf.stochastic(), stream=sf.BitStream(seed=0))
        >>> float(draws.mean())  # nearest rounding gives 0
        0.12345
    """
    return Rounding("stochastic", bits, variant)


#: What `as_rounding` reads.
RoundingLike: TypeAlias = Rounding | str


def as_rounding(x: Any, name: str = "rounding") -> Rounding:
    """The rounding that `x` is, or is printed as: ``"toward_zero"``, ``"stochastic(bits=8).saturating()"``; the text
    ``"stochastic"`` is ``stochastic()``.

    Raises ValueError for anything else, with what may have been meant; `name` is the argument's there.
    """
    if isinstance(x, Rounding):
        return x
    rounding = None
    if isinstance(x, str):
        try:
            rounding = parse_rounding(ast.parse(x.strip(), mode="eval").body)
        except (SyntaxError, TypeError, RecursionError, MemoryError):
            pass  # no expression, or arguments that stochastic does not take
    return rounding or _refuse(x, name)


def parse_rounding(expression: ast.expr) -> Rounding | None:
    """The rounding that an expression of Python stands for, None if it is no rounding; nothing is run."""
    match expression:
        case ast.Name(id=mode) if mode in MODES:
            return Rounding(mode)
        case ast.Name(id="stochastic"):
            return stochastic()
        case ast.Call(func=ast.Name(id="stochastic"), args=arguments, keywords=keywords):
            options = {keyword.arg or "**": _constant(keyword.value) for keyword in keywords}
            return stochastic(*map(_constant, arguments), **options)
        case ast.Call(func=ast.Attribute(value=inner, attr="saturating"), args=[], keywords=[]):
            rounding = parse_rounding(inner)
            return rounding and rounding.saturating()
    return None


def _constant(expression: ast.expr) -> Any:
    try:
        return ast.literal_eval(expression)
    except ValueError:
        raise TypeError(f"a number or a text is expected, not {ast.unparse(expression)[:100]}") from None


def _refuse(x: Any, name: str) -> Rounding:
    """Raise ValueError for what is no rounding."""
    modes = [*MODES, "stochastic(bits=32)"]
    near = _similar_mode(x if isinstance(x, str) else getattr(x, "__name__", ""))
    raise ValueError(
        f"{name} must be a simfloat.Rounding such as simfloat.nearest_even, or its text, got {x!r}. Modes: "
        f"{', '.join(modes)}, each with .saturating() behind it or not." + (f" Did you mean {near}?" if near else "")
    )


def _similar_mode(word: str) -> str | None:
    """The mode that others call so, or whose own name is nearly the word; None if there is none."""
    from difflib import get_close_matches  # only a mistake needs it

    letters = re.sub("[^a-z]", "", word.lower().replace("rounding", "").removeprefix("fe_"))
    letters = letters.rpartition("round")[2] or letters
    for mode, names in USUAL_NAMES.items():
        if letters in names.split():
            return mode
    near = get_close_matches(word, [*MODES, "stochastic", "stochastic(bits=32)"], n=1, cutoff=0.7)
    return near[0] if near else None
