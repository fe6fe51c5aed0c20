"""Random bits that depend on a seed and a position, not on the order of computation."""

from __future__ import annotations

import operator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import CPU, Device
from simfloat.arithmetic.operands import check_not_masked
from simfloat.arithmetic.threads import scratch
from simfloat.common import first_uneven_row, is_integer, message_text
from simfloat.formats import Rounding

NO_WORDS = np.zeros(1, np.uint32)

#: The counter of the generator can number fewer calls than this.
CALLS = 2**44

#: Four draws of at most this number of bits share a random word.
MOST_SHORT_BITS = 8


class BitStream:
    """A source of random bits for stochastic rounding.

    Each stochastic call takes the next call number. Within a call, every element and every step of a sum has its own
    bits (Philox4x32-10 with the seed as key). Results therefore do not depend on threads, blocks or memory layout, and
    two streams with the same `state` give the same bits. A draw is the random bits of one rounding: the upper bits of a
    32-bit word, or, for at most 8 bits, the upper bits of a byte of it.

    Parameters:
        seed: an integer from 0 to 2^64 - 1.

    Raises:
        ValueError: if the seed is not such an integer.

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
        """Return the number of the next stochastic call; ValueError if the generator's counter cannot number
        another."""
        if self.calls + 1 >= CALLS:
            raise ValueError(f"{self!r} has served all its {CALLS - 1} calls: continue with a stream of another seed.")
        self.calls += 1
        return self.calls - 1

    @property
    def state(self) -> dict[str, int]:
        """The state from which `from_state` continues with the same bits; it can be stored as JSON."""
        return {"seed": self.seed, "calls": self.calls}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> BitStream:
        """Return the stream that had this `state`; ValueError if it is not the state of a stream."""
        if not isinstance(state, dict) or set(state) != {"seed", "calls"}:
            raise ValueError(f"A stream's state has the keys 'seed' and 'calls', got {state!r}.")
        stream = cls(state["seed"])
        stream.calls = _integer_below(CALLS, state["calls"], "A stream's number of calls")
        return stream

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue like the stream that had this `state`; ValueError if it is not the state of a stream."""
        continue_like(self, self.from_state(state))

    def __repr__(self) -> str:
        return f"BitStream.from_state({self.state!r})" if self.calls else f"BitStream({self.seed})"


class GivenBits:
    """A stream of draws that you supply, for comparing with hardware or a paper draw by draw.

    Each element of a result takes one draw, in C order, including zeros and NaN. The next call continues after the last
    draw used.

    Sums (sequential, kahan, pairwise, numpy_sum, tree, fused, and blocked ones and lanes of these) take one draw for
    each rounding: element by element in C order, step by step, and within a step in the order of the roundings in the
    accumulator's documentation: a product, then the sum. Pairwise sums and trees take the draws of all products first,
    then the draws of the additions: a pairwise sum level by level, a tree from left to right and from the inside.
    Blocked sums and lanes take the draws of all their runs or lanes, then the draws of the outer sum. Stochastic
    updates of a training take draws from ``simulate(policy, draws={"head.weight": GivenBits(...)})``.

    Parameters:
        integers: an array of draws, each from 0 below 2^bits for the mode that uses it.

    Raises:
        ValueError: if `integers` is not an array of integers from 0 below 2^32.
        ValueError: when it is used, for a draw of 2^bits or more, and if there are too few draws.
        ValueError: when it is used, if operands, output or an unsupported kind of sum would also need random bits.

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
        self.taken = 0  # the number of draws used

    def take_words(self, count: int, bits: int) -> NDArray[np.uint32]:
        """Return the next `count` draws of `bits` bits, as the upper bits of words."""
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


#: A source of random bits for stochastic calls.
Stream = BitStream | GivenBits


def continue_like(stream: Stream, other: Stream) -> None:
    """Let a stream continue as another stream of the same class would; they share nothing afterwards."""
    vars(stream).update(vars(deepcopy(other)))


class Draw(NamedTuple):
    """The key of the random words of a stochastic call.

    Stage 0 is the rounding of the result, stages 1 and following are the steps of an accumulator, 255 is the cast of
    the first operand, and 254 the cast of the second. With `user_bits` the words are the user's.
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
    """Return the draw of the next call of the stream if any of the roundings is stochastic, otherwise None.

    The first rounding is the rounding of the result. Raises ValueError if a rounding is stochastic and `stream` is
    None, and if GivenBits would have to serve any rounding except the first.
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
            "GivenBits can supply the draws of one rounding of a result, or of the steps of its sum, but other "
            "roundings of this call also need random bits. Pass stream=simfloat.BitStream(seed)."
        )
    return Draw(0, 0, user_bits=stream)


def random_words(
    draw: Draw, start: int, stop: int, bits: int = 32, device: Device = CPU
) -> NDArray[np.unsignedinteger]:
    """Return the words of the elements from `start` to `stop`, as bytes for short draws; `start` is a multiple of 16.

    If loops take all elements at once, they compute the words themselves, from a key that is returned instead: see
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
    """Return `value` as an int if it is an integer from 0 below `limit`; otherwise raise ValueError."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else -1
    except TypeError:
        number = -1
    if not 0 <= number < limit:
        raise ValueError(f"{what} is an integer from 0 below 2**{limit.bit_length() - 1}, got {message_text(value)}.")
    return number
