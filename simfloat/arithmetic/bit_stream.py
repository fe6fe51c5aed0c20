"""Random bits that depend on a seed and a place, not on history."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.operands import check_not_masked
from simfloat.arithmetic.threads import scratch
from simfloat.common import first_uneven_row, is_integer, message_text
from simfloat.formats import Rounding

NO_WORDS = np.zeros(1, np.uint32)

#: The counter of the generator has room for fewer calls than that.
CALLS = 2**44

#: Four draws of at most so many bits share a random word.
MOST_SHORT_BITS = 8


class BitStream:
    """The random bits of stochastic rounding, for any `seed` from 0 below 2^64.

    Each stochastic call takes the next call number; within a call every element and every step of a sum finds its own
    bits (Philox4x32-10 with the seed as key). Results therefore do not depend on threads, blocks or memory layout,
    and two streams in the same `state` give the same bits. A draw is the upper bits of a word of its own; draws of at
    most 8 bits are those of bytes, four of which share a word.

    Examples:
        >>> stream = sf.BitStream(seed=0)
        >>> sf.round([0.3, 0.3, 0.3], sf.E2M1, sf.stochastic(), stream=stream)
        array([0. , 0.5, 0.5])
        >>> state = stream.state
        >>> sf.round([0.3, 0.3, 0.3], sf.E2M1, sf.stochastic(), stream=stream)
        array([0.5, 0.5, 0. ])
        >>> sf.round([0.3, 0.3, 0.3], sf.E2M1, sf.stochastic(), stream=sf.BitStream.from_state(state))
        array([0.5, 0.5, 0. ])
    """

    def __init__(self, seed: int) -> None:
        self.seed = _integer_below(2**64, seed, "A seed")
        self.calls = 0

    def take_call(self) -> int:
        """The number of the next stochastic call; ValueError where the generator's counter has no room for another."""
        if self.calls + 1 >= CALLS:
            raise ValueError(
                f"{self!r} has served all its calls, {CALLS - 1} of them: go on with a stream of another seed."
            )
        self.calls += 1
        return self.calls - 1

    @property
    def state(self) -> dict[str, int]:
        """What `from_state` needs to go on with the same bits; JSON-able."""
        return {"seed": self.seed, "calls": self.calls}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> BitStream:
        """The stream that had this `state`; ValueError for what cannot be one."""
        if not isinstance(state, dict) or set(state) != {"seed", "calls"}:
            raise ValueError(f"A stream's state has the keys 'seed' and 'calls', got {state!r}.")
        stream = cls(state["seed"])
        stream.calls = _integer_below(CALLS, state["calls"], "A stream's number of calls")
        return stream

    def __repr__(self) -> str:
        return f"BitStream.from_state({self.state!r})" if self.calls else f"BitStream({self.seed})"


class GivenBits:
    """A stream of the user's own draws: `integers`, each below 2^bits of the stochastic mode that takes it.

    Every element of a result takes one, in C order, zeros and NaN too; the next call goes on where the last one
    stopped. For comparing with hardware or a paper draw by draw.

    Sums (sequential, kahan, pairwise, blocked ones of these) take one for each rounding: element by element in C order,
    step by step, and inside of a step in the order in which the accumulator's documentation gives its roundings: a
    product, then the sum. A pairwise sum takes those of all products first, then those of each level; a blocked one
    those of all its runs, then those of the outer sum. Stochastic updates of a training take them from
    ``simulate(policy, draws={"head.weight": GivenBits(...)})``.

    Raises ValueError for what is no array of integers from 0 below 2^32; where it is used, for a draw of 2^bits or
    more, for fewer draws than there are roundings, and for other sums, or operands and outputs, that draw too.

    Examples:
        >>> sf.round([0.3, 0.3], sf.E2M1, sf.stochastic(bits=3), stream=sf.GivenBits([0, 7]))
        array([0. , 0.5])
    """

    def __init__(self, integers: ArrayLike) -> None:
        check_not_masked(integers, "integers")
        try:
            draws = np.asarray(integers)
        except ValueError:
            rows = first_uneven_row(integers)
            raise ValueError(f"GivenBits takes an array of integers, one draw for each element{rows}.") from None
        if draws.dtype.kind == "O" and draws.size and all(is_integer(one) for one in draws.reshape(-1)):
            raise ValueError(
                "Draws are integers from 0 below 2^bits, bits being at most 32; one of these is beyond 2^63."
            )
        if draws.size == 0 or draws.dtype.kind not in "iu":
            raise ValueError(
                f"GivenBits takes an array of integers, one draw for each element; got {message_text(integers)}."
            )
        if int(draws.min()) < 0 or int(draws.max()) >= 2**32:
            wrong = int(draws.min()) if int(draws.min()) < 0 else int(draws.max())
            raise ValueError(f"Draws are integers from 0 below 2^bits, bits being at most 32; got {wrong}.")
        self._draws = draws.astype(np.uint32).reshape(-1)
        self.taken = 0  # how many of them served

    def take_words(self, count: int, bits: int) -> NDArray[np.uint32]:
        """The next `count` draws of so many bits, as the upper bits of words."""
        draws = self._draws[self.taken : self.taken + count]
        if draws.size < count:
            raise ValueError(
                f"A result of {count} elements takes {count} draws, and GivenBits has {draws.size} of its "
                f"{self._draws.size} left; give it one integer for each element, or each rounding of a sum."
            )
        if count and int(draws.max()) >> bits:
            raise ValueError(f"A draw of {bits} bits lies below {1 << bits}, got {int(draws.max())}.")
        self.taken += count
        return draws << np.uint32(32 - bits)

    def __repr__(self) -> str:
        return f"GivenBits({self._draws[self.taken :].tolist()})"


#: Where stochastic calls get their random bits from.
Stream = BitStream | GivenBits


class Draw(NamedTuple):
    """Where a stochastic call finds its random words.

    Stage 0 is the result's rounding, 1 and following are an accumulator's steps, 255 is the cast of the first operand
    and 254 that of the second. With `user_bits` the words are the user's.
    """

    call: int
    seed: int
    stage: int = 0
    user_bits: GivenBits | None = None


def check_stream(stream: Any) -> None:
    """Raise ValueError unless `stream` is None, a BitStream or GivenBits."""
    if stream is not None and not isinstance(stream, BitStream | GivenBits):
        raise ValueError(
            f"stream must be a simfloat.BitStream, for example simfloat.BitStream(0), or simfloat.GivenBits; "
            f"got {stream!r}."
        )


def take_draw(stream: Stream | None, *roundings: Rounding) -> Draw | None:
    """The draw of the stream's next call if any of the roundings is stochastic, else None.

    The first rounding is that of the result. Raises ValueError if one is stochastic and there is no stream, and if
    GivenBits would have to serve any but the first.
    """
    for rounding in roundings:
        if rounding.mode == "stochastic":
            break
    else:
        return None
    if stream is None:
        raise ValueError("Stochastic rounding needs random bits: pass stream=simfloat.BitStream(seed).")
    if isinstance(stream, BitStream):
        return Draw(stream.take_call(), stream.seed)
    if any(rounding.is_stochastic for rounding in roundings[1:]):
        raise ValueError(
            "GivenBits serve a result's rounding or the steps of its sum, and more than these draw here; pass "
            "stream=simfloat.BitStream(seed)."
        )
    return Draw(0, 0, user_bits=stream)


def random_words(
    draw: Draw, start: int, stop: int, bits: int = 32, device: Device = CPU
) -> NDArray[np.unsignedinteger]:
    """The words of the elements from start to stop, the bytes for short draws; start is a multiple of 16.

    Where loops take all elements at once, they make the words themselves, from the place that is handed to them: see
    `kernels/gpu/elementwise.py`.
    """
    if not device.in_pieces:
        return np.array([draw.call, draw.stage, draw.seed, bits <= MOST_SHORT_BITS], np.uint64)
    share = 4 if bits <= MOST_SHORT_BITS else 1
    # Words come in fours; a short last block leaves some of them unused.
    count = -(-(stop - start) // (4 * share)) * 4
    words = scratch("words", count, np.uint32)
    device.loops.random.fill_words(words, start // share, draw.call, draw.stage, np.uint64(draw.seed))
    return (words.view(np.uint8) if share == 4 else words)[: stop - start]


def _integer_below(limit: int, value: Any, what: str) -> int:
    """`value` as an int, if it is an integer from 0 below `limit`."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else -1
    except TypeError:
        number = -1
    if not 0 <= number < limit:
        raise ValueError(f"{what} is an integer from 0 below 2**{limit.bit_length() - 1}, got {message_text(value)}.")
    return number
