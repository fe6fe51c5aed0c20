"""Which of a format's numbers is chosen for a number that the format does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simfloat.formats.value import hashed_once

DETERMINISTIC = ("nearest_even", "nearest_away", "toward_zero", "toward_positive", "toward_negative", "to_odd")
VARIANTS = ("A", "B", "C")


@hashed_once
@dataclass(frozen=True)
class Rounding:
    """A rounding mode. Use the constants of this module and :func:`stochastic` rather than the constructor.

    mode is one of the deterministic modes of IEEE 754-2019 section 4.3 (plus ``to_odd``), or ``"stochastic"``
    with its number of random `bits` and its `variant`. With ``saturates`` overflow is clamped to +-max.
    """

    mode: str
    bits: int = 0
    variant: str = ""
    saturates: bool = False

    def __post_init__(self) -> None:
        if self.mode == "stochastic":
            _check_stochastic(self.bits, self.variant)
        elif self.mode not in DETERMINISTIC:
            raise ValueError(f"Unknown rounding mode {self.mode!r}; modes: {', '.join(DETERMINISTIC)}, stochastic.")
        elif self.bits or self.variant:
            raise ValueError(f"{self.mode} takes no random bits and no variant; use stochastic(bits=..., variant=...).")

    @property
    def is_stochastic(self) -> bool:
        """Whether the mode draws random bits, and so needs a stream."""
        return self.mode == "stochastic"

    def saturating(self) -> Rounding:
        """The same mode with overflow clamped to +-max, infinite operands and results included."""
        return replace(self, saturates=True)

    def __repr__(self) -> str:
        text = f"stochastic(bits={self.bits}, variant={self.variant!r})" if self.is_stochastic else self.mode
        return text + ".saturating()" if self.saturates else text


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
    """
    return Rounding("stochastic", bits, variant)
