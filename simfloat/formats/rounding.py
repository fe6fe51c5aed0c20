"""Rounding modes: the choice between the two numbers of a format that are next to a value."""

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

#: Other parts of a spacing, apart from 0 and HALF, at which a mode may start to choose the neighbour farther from zero:
#: ABOVE_HALF for ties that go toward zero, and NEVER. The rest of a value has fewer bits than a float64, so it is never
#: between HALF and ABOVE_HALF.
ABOVE_HALF, NEVER = math.nextafter(0.5, 1.0), 2.0

#: Parts of a spacing that show the choice of a mode between zero and a half; UPPER_HALF shows it above a half.
BELOW_HALF = (Fraction(1, 2**64), Fraction(1, 4), HALF - Fraction(1, 2**64))
UPPER_HALF = tuple(1 - part for part in BELOW_HALF)


class ModeRule(NamedTuple):
    """A deterministic mode, defined on magnitudes: the row from which all facts of the mode follow.

    `away(rest, odd, negative)` returns True if the neighbour farther from zero is chosen. `rest` is the part of a
    spacing by which the magnitude exceeds the other neighbour, and `odd` is True if that one is odd. Kernels support
    modes that start to choose the farther one at any part, at a half, above a half, or never.

    `steps` names the functions for this mode on lanes of float32, on bit patterns of a GPU and on aligned terms: see
    `kernels/lanes/operations.py` and `kernels/units/aligned.py`. A mode without it is rounded by loops that support all
    modes.
    """

    away: Callable[[Fraction, bool, bool], bool]
    steps: str = ""
    stops: tuple[bool, bool] = (False, False)  # True if a positive, or a negative, overflow gives the largest number
    zero_sum: float = 1.0  # the sign of x - x
    instruction: str = ""  # the suffix of the instructions of a GPU that round FP32 in this mode: PTX ISA 9.7.3


#: The modes of IEEE 754-2019 section 4.3, nearest with other rules for ties (toward zero: section 9.5), and rounding to
#: odd. Overflow: section 7.4. Zero sums: section 6.3.
MODES = {
    "nearest_even": ModeRule(lambda rest, odd, negative: rest > HALF or (rest == HALF and odd), "nearest"),
    "nearest_away": ModeRule(lambda rest, odd, negative: rest >= HALF, "away"),
    "nearest_toward_zero": ModeRule(lambda rest, odd, negative: rest > HALF),
    "nearest_up": ModeRule(lambda rest, odd, negative: rest > HALF or (rest == HALF and not negative)),
    "nearest_down": ModeRule(lambda rest, odd, negative: rest > HALF or (rest == HALF and negative)),
    "toward_zero": ModeRule(lambda rest, odd, negative: False, "truncated", stops=(True, True), instruction="rz"),
    "toward_positive": ModeRule(
        lambda rest, odd, negative: rest > 0 and not negative, "upward", stops=(False, True), instruction="rp"
    ),
    "toward_negative": ModeRule(
        lambda rest, odd, negative: rest > 0 and negative, "downward", (True, False), zero_sum=-1.0, instruction="rm"
    ),
    "to_odd": ModeRule(lambda rest, odd, negative: rest > 0 and not odd, "sticky", stops=(True, True)),
}

#: The steps that can align terms: `kernels/units/aligned.py`.
ALIGNING = ("truncated", "nearest", "sticky", "downward")

VARIANTS = ("A", "B", "C")

#: Other names of the modes, without "round" and with letters only: from IEEE 754, C, MPFR, Python's decimal, Java,
#: RISC-V and Berkeley TestFloat. The error for an unknown text suggests the mode with that name.
USUAL_NAMES = {
    "nearest_even": "near nearest nearesteven toeven tonearest tonearesteven rn rne rnte rtne rte ne even halfeven "
    "rint tiestoeven nearesttiestoeven halftoeven banker bankers rneareven neareven rndn half",
    "nearest_away": "rna rnta rmm away tiestoaway nearestaway nearesttiestoaway halfup halfaway halfawayfromzero "
    "rnearmaxmag nearmaxmag rndna ties",
    "nearest_toward_zero": "tiestowardzero tiestozero nearesttiestowardzero nearestzero halfdown halftowardzero "
    "halftozero",
    "nearest_up": "tiesup tiestowardpositive nearesttiesup halfceiling halftowardpositive",
    "nearest_down": "tiesdown tiestowardnegative nearesttiesdown halffloor halftowardnegative",
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
    """The part of a spacing at which a mode starts to choose the neighbour farther from zero, by sign and parity."""

    positive: float
    negative: float
    odd_positive: float
    odd_negative: float


@cache
def first_parts(away: Callable[[Fraction, bool, bool], bool]) -> Away:
    """Return the parts that follow from the rule of a mode; ValueError for a rule that kernels do not support."""
    return Away(*(_first_part(away, odd, negative) for odd in (False, True) for negative in (False, True)))


def _first_part(away: Callable[[Fraction, bool, bool], bool], odd: bool, negative: bool) -> float:
    chosen = [bool(away(part, odd, negative)) for part in (*BELOW_HALF, HALF, *UPPER_HALF)]
    first = {7: 0.0, 4: float(HALF), 3: ABOVE_HALF, 0: NEVER}.get(sum(chosen))
    if first is None or chosen != sorted(chosen):
        raise ValueError(
            "A mode must choose the neighbour farther from zero always, from half a spacing, above half a spacing, or "
            f"never; {'below' if negative else 'above'} zero and next to an {'odd' if odd else 'even'} number, this "
            "mode does none of these."
        )
    return first


@hashed_once
@dataclass(frozen=True)
class Rounding:
    """A rounding mode. Use the constants of this module and :func:`stochastic` rather than the constructor.

    Parameters:
        mode: ``"nearest_even"``, ``"nearest_away"``, ``"nearest_toward_zero"``, ``"nearest_up"``, ``"nearest_down"``,
            ``"toward_zero"``, ``"toward_positive"``, ``"toward_negative"``, ``"to_odd"`` or ``"stochastic"``.
        bits: the number of random bits of the stochastic mode, 1 to 32; 0 for other modes.
        variant: the variant of the stochastic mode, ``"A"``, ``"B"`` or ``"C"``; empty for other modes.
        saturates: True to clamp overflow to +-max.
        overflows: True to return an infinity on overflow, in every direction.

    Raises:
        ValueError: if the mode is unknown, or if another argument is invalid for it; if `saturates` and `overflows` are
            both True.

    Examples:
        >>> sf.round(1e6, sf.FP16, sf.nearest_even)
        array(inf)
        >>> sf.round(1e6, sf.FP16, sf.nearest_even.saturating())
        array(65504.)
        >>> sf.round(1e6, sf.FP16, sf.toward_zero.overflowing())
        array(inf)
    """

    mode: str
    bits: int = 0
    variant: str = ""
    saturates: bool = False
    overflows: bool = False

    def __post_init__(self) -> None:
        store_as_pythons(self)
        if self.mode == "stochastic":
            _check_stochastic(self.bits, self.variant)
        elif not isinstance(self.mode, str) or self.mode not in MODES:
            raise ValueError(f"Unknown rounding mode {self.mode!r}; modes: {', '.join(MODES)}, stochastic.")
        elif self.bits or self.variant:
            raise ValueError(f"{self.mode} takes no random bits and no variant; use stochastic(bits=..., variant=...).")
        for name in ("saturates", "overflows"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        if self.saturates and self.overflows:
            raise ValueError(
                "saturates and overflows exclude each other: overflow returns either +-max or an infinity."
            )

    @property
    def is_stochastic(self) -> bool:
        """True if the mode uses random bits, and so needs a stream."""
        return self.mode == "stochastic"

    @property
    def zero_sum(self) -> float:
        """The sign of an exact zero sum of unlike signs, 1.0 or -1.0."""
        return 1.0 if self.is_stochastic else MODES[self.mode].zero_sum

    def stops(self, negative: bool) -> bool:
        """Return True if overflow gives the largest number instead of infinity, by saturation or by direction.

        `negative` is True for results below zero.
        """
        by_direction = not (self.overflows or self.is_stochastic) and MODES[self.mode].stops[negative]
        return self.saturates or by_direction

    @property
    def is_to_nearest(self) -> bool:
        """True if the nearer neighbour is always chosen, for any rule for ties."""
        return not self.is_stochastic and set(self.away) <= {HALF, ABOVE_HALF}

    @property
    def is_toward_zero(self) -> bool:
        """True if the neighbour nearer to zero is always chosen."""
        return not self.is_stochastic and set(self.away) == {NEVER}

    @property
    def away(self) -> Away:
        """The fraction of a spacing at and above which a deterministic mode chooses the neighbour farther from zero."""
        return first_parts(MODES[self.mode].away)

    @property
    def reads_odd(self) -> bool:
        """True if the choice depends on which of the two neighbours is odd."""
        return not self.is_stochastic and self.away[:2] != self.away[2:]

    @property
    def steps(self) -> str:
        """The name of the functions for this mode on lanes, on bit patterns and on aligned terms; may be empty."""
        return "" if self.is_stochastic else MODES[self.mode].steps

    @property
    def instruction(self) -> str:
        """The suffix of the instructions of a GPU that round FP32 in this mode, or an empty text."""
        return "" if self.is_stochastic or self.saturates or self.overflows else MODES[self.mode].instruction

    @property
    def aligns(self) -> bool:
        """True if fused sums can align their terms in this mode."""
        return not (self.saturates or self.overflows) and self.steps in ALIGNING

    def saturating(self) -> Rounding:
        """Return this mode with overflow clamped to +-max, infinite operands and results included."""
        return self._saturating

    @cached_property
    def _saturating(self) -> Rounding:
        """The saturating mode, cached with its hash: every scaled cast uses it."""
        return replace(self, saturates=True, overflows=False)

    def overflowing(self) -> Rounding:
        """Return this mode with overflow to an infinity, also in directions in which the result would be +-max.

        A result overflows if it is beyond the largest number when it is rounded as if the exponent had no bounds.
        Rounding to a format without infinities in this mode raises ValueError.
        """
        return replace(self, saturates=False, overflows=True)

    def check_overflow(self, format: Any) -> None:
        """Raise ValueError if overflow must become an infinity that the format does not have."""
        if self.overflows and not format.has_infinity:
            raise ValueError(
                f"{self} turns overflow into an infinity, and {format} has none. Leave .overflowing() out, or write "
                ".saturating() for the largest number."
            )

    def __repr__(self) -> str:
        text = f"stochastic(bits={self.bits}, variant={self.variant!r})" if self.is_stochastic else self.mode
        return text + (".saturating()" if self.saturates else ".overflowing()" if self.overflows else "")

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)


def _check_stochastic(bits: int, variant: str) -> None:
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= 32:
        raise ValueError(f"stochastic rounding takes 1 to 32 random bits, got bits={bits!r}.")
    if variant not in VARIANTS:
        raise ValueError(f"variant must be 'A', 'B' or 'C' (IEEE P3109), got {variant!r}.")


nearest_even = Rounding("nearest_even")
nearest_away = Rounding("nearest_away")
nearest_toward_zero = Rounding("nearest_toward_zero")
nearest_up = Rounding("nearest_up")
nearest_down = Rounding("nearest_down")
toward_zero = Rounding("toward_zero")
toward_positive = Rounding("toward_positive")
toward_negative = Rounding("toward_negative")
to_odd = Rounding("to_odd")


def stochastic(bits: int = 32, variant: str = "C") -> Rounding:
    """Create a stochastic rounding mode: up or down at random, with a probability given by the distances.

    Let N = bits, let R be uniform in [0, 2^N), and let nu be the distance of a magnitude from the smaller of its two
    neighbours, as a part of their distance. The larger neighbour is chosen if

    * variant A: floor(nu 2^N) + R >= 2^N (biased toward zero by 2^-(N+1) of the gap);
    * variant B: floor(nu 2^(N+1)) + 2R + 1 >= 2^(N+1);
    * variant C: round-to-even(nu 2^N) + R >= 2^N (unbiased over a uniform nu).

    Parameters:
        bits: the number of random bits N, 1 to 32.
        variant: ``"A"``, ``"B"`` or ``"C"``.

    Returns:
        The rounding mode. Calls that round in it need a `stream`.

    Raises:
        ValueError: if `bits` or `variant` is invalid.

    Source: IEEE P3109 interim report 4.0, section 4.7.4 (StochasticA, B, C).

    Examples:
        >>> draws = sf.round(np.full(10_000, 0.125), sf.E2M1, sf.stochastic(), stream=sf.BitStream(seed=0))
        >>> float(draws.mean())  # nearest rounding gives 0
        0.12345
    """
    return Rounding("stochastic", bits, variant)


#: The types that `as_rounding` reads.
RoundingLike: TypeAlias = Rounding | str


def as_rounding(x: Any, name: str = "rounding") -> Rounding:
    """Return the rounding mode `x`, or the mode with the text `x`.

    Texts are ``"toward_zero"``, ``"stochastic(bits=8).saturating()"``, and so on; ``"stochastic"`` is ``stochastic()``.
    Raises ValueError for anything else, with a suggestion; `name` is the name of the argument in the message.
    """
    if isinstance(x, Rounding):
        return x
    rounding = None
    if isinstance(x, str):
        try:
            rounding = parse_rounding(ast.parse(x.strip(), mode="eval").body)
        except (SyntaxError, TypeError, RecursionError, MemoryError):
            pass  # not an expression, or arguments that stochastic does not accept
    return rounding or _refuse(x, name)


def parse_rounding(expression: ast.expr) -> Rounding | None:
    """Return the rounding mode that a Python expression represents, None for any other; no code is run."""
    match expression:
        case ast.Name(id=mode) if mode in MODES:
            return Rounding(mode)
        case ast.Name(id="stochastic"):
            return stochastic()
        case ast.Call(func=ast.Name(id="stochastic"), args=arguments, keywords=keywords):
            options = {keyword.arg or "**": _constant(keyword.value) for keyword in keywords}
            return stochastic(*map(_constant, arguments), **options)
        case ast.Call(func=ast.Attribute(value=inner, attr="saturating" | "overflowing" as name), args=[], keywords=[]):
            rounding = parse_rounding(inner)
            return rounding and (rounding.saturating() if name == "saturating" else rounding.overflowing())
    return None


def _constant(expression: ast.expr) -> Any:
    try:
        return ast.literal_eval(expression)
    except ValueError:
        raise TypeError(f"a number or a text is expected, not {ast.unparse(expression)[:100]}") from None


def _refuse(x: Any, name: str) -> Rounding:
    """Raise ValueError for a value that is not a rounding mode."""
    modes = [*MODES, "stochastic(bits=32)"]
    near = _similar_mode(x if isinstance(x, str) else getattr(x, "__name__", ""))
    raise ValueError(
        f"{name} must be a simfloat.Rounding such as simfloat.nearest_even, or its text, got {x!r}. Modes: "
        f"{', '.join(modes)}, each may be followed by .saturating() or .overflowing()."
        + (f" Did you mean {near}?" if near else "")
    )


def _similar_mode(word: str) -> str | None:
    """Return the mode that has this name elsewhere, or a similar name; None for any other word."""
    from difflib import get_close_matches  # only a mistake needs it

    letters = re.sub("[^a-z]", "", word.lower().replace("rounding", "").removeprefix("fe_"))
    letters = letters.rpartition("round")[2] or letters
    for mode, names in USUAL_NAMES.items():
        if letters in names.split():
            return mode
    near = get_close_matches(word, [*MODES, "stochastic", "stochastic(bits=32)"], n=1, cutoff=0.7)
    return near[0] if near else None
