"""Attention in blocks of keys, forward and backward, in the order that :func:`simfloat.flash_attention` states.

`attend` returns the result, and the arrays for its gradients. `gradients` returns the gradient of queries, keys, values
or a mask. `Parts` is the arithmetic of the parts of attention, each under the name that observers receive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.casts import as_cast
from simfloat.arithmetic.scaling import AmaxHistory, Delayed, WholeScaling
from simfloat.arithmetic.target import Observer, carrier_of, notify
from simfloat.formats import Format, nearest_even
from simfloat.kernels.rounding.events import wants_optional_counts
from simfloat.policy.flash_attention import FlashAttention
from simfloat.simulation.arithmetic import Arithmetic, Input
from simfloat.simulation.formulas import number
from simfloat.simulation.inside import CompositeArithmetic

#: log2(e), the factor from powers of e to powers of 2.
LOG2E = math.log2(math.e)

#: The output between blocks, which observers receive as "output".
RUNNING = "running output"

#: The option of a kernel that gives the format of a part, if it has another name; empty for none.
OPTION_OF = {"maximum": "scores", RUNNING: "output", "output": "", "probabilities": ""}

#: The parts that policies find inside the composite "softmax" of attention.
SOFTMAX = ("maximum", "exponentials", "denominator")

#: The roundings of the heads of an operand, or one rounding for all of them.
Inputs = Input | NDArray[np.object_]


class AttentionOptions(NamedTuple):
    """The options of a call: the kernel, the factor of scores, the masks, and the dropout of probabilities."""

    kernel: FlashAttention
    scale: float
    allowed: NDArray[np.bool_] | None = None  # True for keys that take part
    addends: tuple[NDArray, ...] = ()  # numbers that are added to the scores
    passes: NDArray[np.bool_] | None = None  # True for probabilities that dropout keeps
    keep_probability: float = 1.0
    groups: tuple[int, int] | None = None  # the heads of keys, and the heads of queries that share each of them

    def with_groups(self, queries: int, keys: int) -> AttentionOptions:
        """Return the options for these numbers of heads: heads that share a key become one more axis."""
        if queries == keys:
            return self
        grouped = self._replace(groups=(keys, queries // keys))
        masks = [None if mask is None else grouped.by_group(mask) for mask in (self.allowed, self.passes)]
        return grouped._replace(allowed=masks[0], passes=masks[1], addends=tuple(map(grouped.by_group, self.addends)))

    def by_group(self, x: NDArray) -> NDArray:
        """Return an array (..., heads, n, m) as (..., groups, heads of a group or 1, n, m)."""
        if self.groups is None or x.ndim < 3:
            return x
        heads = (1, 1) if x.shape[-3] == 1 else (self.groups[0], x.shape[-3] // self.groups[0])
        return x.reshape(*x.shape[:-3], *heads, *x.shape[-2:])

    def by_head(self, x: NDArray) -> NDArray:
        """Return an array (..., groups, heads of a group, n, m) as (..., heads, n, m)."""
        return x if self.groups is None else x.reshape(*x.shape[:-4], -1, *x.shape[-2:])

    @property
    def compensation(self) -> float:
        """The factor of probabilities that dropout keeps, 1 / (1 - p)."""
        return 1 / self.keep_probability if self.keep_probability else 0.0

    @property
    def scales_exponents(self) -> bool:
        """True if the scale is a factor of exponents of 2, and not of the scores."""
        return self.kernel.exponential == "exp2" and self.scale > 0 and not self.addends


@dataclass(frozen=True)
class GivenScale(WholeScaling):
    """A scaling by a factor that was computed from the whole tensor, for a part of it."""

    factor: float

    def scale(self, x: NDArray, format: Format, history: AmaxHistory | None) -> float:
        """Return the factor."""
        return self.factor


class NamedPart(Observer):
    """An observer that receives the elementwise operations of a part by the name of the part."""

    def __init__(self, observer: Observer, name: str) -> None:
        self.observer, self.name, self.more = observer, name, wants_optional_counts(observer)

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on with the name of the part."""
        notify(self.observer, events, self.name)


class Parts:
    """The arithmetic of the parts of attention at its place, in one phase."""

    def __init__(self, inside: CompositeArithmetic, kernel: FlashAttention, phase: str) -> None:
        self.inside, self.softmax, self.kernel, self.phase = inside, inside.inner("softmax"), kernel, phase
        self._parts: dict[tuple[str, str], Arithmetic] = {}

    def part(self, name: str, operation: str) -> Arithmetic:
        """Return the arithmetic of an operation of a part."""
        u = self._parts.get((name, operation))
        if u is None:
            # As in attention with rounded steps, these parts are inside a softmax, which overrides may name.
            u = (self.softmax if name in SOFTMAX else self.inside).for_operation(operation)
            shown = "output" if name == RUNNING else name
            observer = u.target.observer
            if observer is not None and operation not in ("matmul", "sum"):
                observer = NamedPart(observer, shown)
            target = u.target._replace(operation=shown, observer=observer)
            format = getattr(self.kernel, OPTION_OF.get(name, name), None)
            if isinstance(format, Format) and format != target.format:
                u = u.with_target(target._replace(format=format, dtype=carrier_of(format)))
            else:
                u = u._replace(target=target)
            self._parts[name, operation] = u
        return u

    def apply(self, name: str, operation: str, *operands: NDArray) -> NDArray:
        """Compute an elementwise operation of a part."""
        return self.part(name, operation).apply(operation, *operands)

    def between_blocks(self, name: str) -> Arithmetic:
        """Return the arithmetic of a gradient that is stored after each block, in the format of gradients."""
        u, format = self.part(name, "add"), self.inside.place.recipe.activation_gradients
        if not isinstance(format, Format):
            return u
        return u.with_target(u.target._replace(format=format, dtype=carrier_of(format)))

    def constant(self, name: str, x: float) -> NDArray:
        """Return a constant in the format of a part, as in the registers of a kernel."""
        return self.part(name, "multiply").with_rounding(nearest_even).with_observer(None).round(number(x))

    def sum_rows(self, name: str, x: NDArray) -> NDArray:
        """Sum the last axis, which is kept with size 1."""
        return self.part(name, "sum").sum(x, (x.ndim - 1,)).reshape(*x.shape[:-1], 1)

    def matmul(self, name: str, a: NDArray, b: NDArray, a_inputs: Inputs, b_inputs: Inputs) -> NDArray:
        """Multiply matrices, each with the rounding of its head."""
        u = self.part(name, "matmul")
        if isinstance(a_inputs, Input) and isinstance(b_inputs, Input):
            is_known = not any(isinstance(x.cast.scale, GivenScale) for x in (a_inputs, b_inputs))
            # The cache keeps the options of a product by its inputs. Those with a given scale exist for one call.
            return (u if is_known else u._replace(options_cache={})).matmul(a, b, a_inputs, b_inputs)
        heads = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if 0 in heads:
            return np.zeros((*heads, a.shape[-2], b.shape[-1]), u.target.dtype, like=a)
        a, b = (np.broadcast_to(x, (*heads, *x.shape[-2:])) for x in (a, b))
        left, right = [np.broadcast_to(np.asarray(x, object), heads) for x in (a_inputs, b_inputs)]
        u = u._replace(options_cache={})
        products = [u.matmul(a[i], b[i], left.item(i), right.item(i)) for i in np.ndindex(*heads)]
        return np.stack(products).reshape(*heads, a.shape[-2], b.shape[-1])

    def inputs(self, use: str, x: NDArray, is_gradient: bool = False) -> Inputs:
        """Return the rounding of a whole operand, with scales of all of its parts; `use` names it for histories."""
        place = self.inside.place_of("matmul")
        operand = place.gradient if is_gradient else place.input()
        scale, cast = operand.cast.scale, operand.cast
        if not isinstance(scale, WholeScaling):
            return operand
        is_delayed = isinstance(scale, Delayed)
        if self.kernel.scales == "heads" and not is_delayed:
            heads = np.empty(x.shape[:-2], object)
            for i in np.ndindex(*heads.shape):
                heads[i] = Input(
                    replace(cast, scale=GivenScale(scale.scale(x[i], cast.format, None))), operand.operation
                )
            return heads
        histories = place.active_policy.histories.histories_at(place.path, self.phase, use, None)
        history = histories[0] if is_delayed else None
        return Input(replace(cast, scale=GivenScale(scale.scale(x, cast.format, history))), operand.operation)

    def probabilities(self) -> Input:
        """Return the rounding of probabilities as operands."""
        place, kernel = self.inside.place_of("matmul"), self.kernel
        operand: Input | None = place.bound_layers.get(kernel)
        if operand is None:
            cast = kernel.probabilities or as_cast(place.recipe.compute)
            if kernel.shift and (cast.scale is None or cast.scale.is_whole) or isinstance(cast.scale, WholeScaling):
                cast = replace(cast, scale=GivenScale(2.0**kernel.shift))
            operand = place.bound_layers[kernel] = Input(cast, "probabilities")
        return operand


class AttentionState(NamedTuple):
    """The arrays for the gradients: scores of all keys, and for each query m and L = m + log(l)."""

    scores: NDArray  # -inf for keys that take no part
    maximum: NDArray
    log_sum: NDArray
    factor: NDArray | None  # from scores to exponents of 2
    shared: dict[str, Any]  # for the gradients of several operands, from one gradient of the result


def causal_mask(queries: int, keys: int) -> NDArray[np.bool_]:
    """Return a mask that is True if the key is not after the query."""
    return np.tril(np.ones((queries, keys), bool))


def split_masks(masks: Iterable[NDArray]) -> tuple[NDArray[np.bool_] | None, tuple[NDArray, ...]]:
    """Return the booleans and the addends of masks of scores.

    A key with the addend -inf takes no part, even if the format has no infinities.
    """
    allowed: NDArray[np.bool_] | None = None
    addends = []
    for mask in masks:
        if mask.dtype != bool:
            mask, addend = mask != -np.inf, mask
            addends.append(np.where(mask, addend, addend.dtype.type(0)))
        allowed = mask if allowed is None else allowed & mask
    return allowed, tuple(addends)


def attend(u: Parts, operands: Iterable[NDArray], options: AttentionOptions) -> tuple[NDArray, AttentionState]:
    """Return the result of attention, in the format of the output, and the arrays for its gradients."""
    q, k, v = map(options.by_group, operands)
    scores, factor = _scores(u, q, k, options)
    v_inputs, p_input = u.inputs("value", v), u.probabilities()
    highest = np.zeros((*scores.shape[:-1], 1), scores.dtype, like=scores) - np.float32(np.inf)
    maximum = total = output = None
    for keys in options.kernel.blocks(scores.shape[-1]):
        before, highest = highest, np.maximum(highest, scores[..., keys].max(-1, keepdims=True))
        # A query without any key so far has the maximum -inf. It is replaced by 0, because -inf - (-inf) is NaN.
        maximum = u.part("maximum", "max").round(_where(highest == -np.inf, 0, highest))
        powers = _exponentials(u, scores[..., keys], maximum, _exponent(u, maximum, factor), factor)
        summed = u.sum_rows("denominator", powers)
        product = u.matmul("output", _after_dropout(powers, options, keys), v[..., keys, :], p_input, v_inputs)
        if total is None or output is None:
            total = summed
            output = product if options.kernel.output is None else u.part(RUNNING, "add").round(product)
            continue
        fall = u.apply("exponentials", "subtract", _where(before == -np.inf, maximum, before), maximum)
        rescaling = _power(u, _exponent(u, fall, factor), factor)
        total = u.apply("denominator", "fma", rescaling, total, summed)
        output = u.apply(RUNNING, "add", u.apply(RUNNING, "multiply", rescaling, output), product)
    if maximum is None or total is None or output is None:  # without keys
        shape = *np.broadcast_shapes(scores.shape[:-2], v.shape[:-2]), scores.shape[-2], v.shape[-1]
        zeros = np.zeros(shape, scores.dtype, like=scores)
        return options.by_head(zeros), AttentionState(scores, highest, highest, factor, {})
    total = _where(total == 0, 1, total)  # the output of a query without any key is 0
    share = u.apply("denominator", "divide", number(1.0), total)
    if options.passes is not None:
        share = u.apply("denominator", "multiply", share, u.constant("denominator", options.compensation))
    result = options.by_head(u.apply("output", "multiply", output, share))
    return result, AttentionState(scores, maximum, _log_sum(u, maximum, total, options), factor, {})


def _scores(u: Parts, q: NDArray, k: NDArray, options: AttentionOptions) -> tuple[NDArray, NDArray | None]:
    """Return the scores, and for powers of 2 the factor from scores to exponents."""
    scores = u.matmul("scores", q, k.swapaxes(-1, -2), u.inputs("query", q), u.inputs("key", k))
    factor = None
    if not options.scales_exponents:
        scores = u.apply("scores", "multiply", scores, u.constant("scores", options.scale))
        for addend in options.addends:
            scores = u.apply("scores", "add", scores, addend)
    if options.kernel.exponential == "exp2":
        factor = u.constant("exponentials", LOG2E * (options.scale if options.scales_exponents else 1.0))
    return scores if options.allowed is None else _where(options.allowed, scores, -np.inf), factor


def _exponent(u: Parts, x: NDArray, factor: NDArray | None) -> NDArray:
    """Return x, or x * factor."""
    return x if factor is None else u.apply("exponentials", "multiply", x, factor)


def _exponentials(u: Parts, scores: NDArray, maximum: NDArray, base: NDArray, factor: NDArray | None) -> NDArray:
    """Return exp(scores - base) or exp2(fma(scores, factor, -base)), and 0 for keys that take no part."""
    hidden = scores == -np.inf
    has_hidden = bool(hidden.any())
    if has_hidden:
        scores = _where(hidden, maximum, scores)  # a score in range; its exponential is not used
    if factor is None:
        exponents = u.apply("exponentials", "subtract", scores, base)
    else:
        exponents = u.apply("exponentials", "fma", scores, factor, -base)
    powers = _power(u, exponents, factor)
    return _where(hidden, 0, powers) if has_hidden else powers


def _power(u: Parts, exponents: NDArray, factor: NDArray | None) -> NDArray:
    """Return the power of e, or with a factor the power of 2."""
    if factor is None:
        return u.apply("exponentials", "exp", exponents)
    return u.apply("exponentials", "power", number(2.0), exponents)


def _log_sum(u: Parts, maximum: NDArray, total: NDArray, options: AttentionOptions) -> NDArray:
    """Return m + log(l). If the scores are not multiplied by the scale, m is multiplied here."""
    logarithm = u.apply("denominator", "log", total)
    if options.scales_exponents:
        return u.apply("denominator", "fma", maximum, u.constant("denominator", options.scale), logarithm)
    return u.apply("denominator", "add", maximum, logarithm)


def _after_dropout(x: NDArray, options: AttentionOptions, keys: slice = slice(None)) -> NDArray:
    """Return the elements that dropout keeps, and 0 for the others."""
    return x if options.passes is None else _where(options.passes[..., keys], x, 0)


def _where(condition: NDArray[np.bool_], x: NDArray | float, y: NDArray | float) -> NDArray:
    """Return elements of x or y, of which at least one is an array, in its dtype."""
    array: Any = y if isinstance(x, float | int) else x
    return np.where(condition, x, y).astype(array.dtype, copy=False)


def gradients(
    u: Parts,
    number: int,
    g: NDArray,
    y: NDArray,
    attended: AttentionState,
    operands: Iterable[NDArray],
    options: AttentionOptions,
) -> NDArray:
    """Return the gradient of the query (0), the key (1), the value (2) or the mask (3); g is the gradient of y."""
    if attended.shared.get("gradient") is not g:
        attended.shared.clear()
        attended.shared["gradient"] = g
    g, y, q, k, v = map(options.by_group, (g, y, *operands))
    if number == 2:
        return _value_gradient(u, g, attended, options)
    slopes = _cached_value(attended, "slopes", lambda: _score_gradient(u, g, y, attended, v, options))
    if number == 3:
        return options.by_head(_times_compensation(u, "scores", slopes, options))
    inputs = _cached_value(attended, "inputs", lambda: u.inputs("scores", slopes, is_gradient=True))
    if number == 1:
        q_inputs = u.inputs("query", q)

        def to_key(rows: slice) -> NDArray:
            product = u.matmul("key", slopes[..., rows, :].swapaxes(-1, -2), q[..., rows, :], inputs, q_inputs)
            return _times_scale(u, "key", product, options)

        return _over_queries(u, "key", to_key, q.shape[-2], options)
    k_inputs, blocks = u.inputs("key", k), replace(options.kernel, reverse=False).blocks(k.shape[-2])
    products = (u.matmul("query", slopes[..., keys], k[..., keys, :], inputs, k_inputs) for keys in blocks)
    if options.kernel.block_queries is None:
        total = _sum_of_blocks(u.part("query", "add"), products)
        total = total if total is None else _times_scale(u, "query", total, options)
    else:
        total = _sum_of_blocks(
            u.between_blocks("query"), (_times_scale(u, "query", x, options) for x in products), is_stored=True
        )
    return options.by_head(np.zeros(q.shape, slopes.dtype, like=q) if total is None else total)


def _over_queries(
    u: Parts, name: str, compute: Callable[[slice], NDArray], queries: int, options: AttentionOptions
) -> NDArray:
    """Return the gradient of a key or value as one sum over all queries, or block by block, in the format of gradients
    between blocks.

    Heads that share it follow each other in the sum of blocks. Otherwise their gradients are summed at the end.
    """
    size = u.kernel.size_of_query_blocks(queries)
    if size is None or not queries:
        return _of_group(u, name, compute(slice(None)), options)
    blocks: Iterable[NDArray] = (compute(slice(start, start + size)) for start in range(0, queries, size))
    if options.groups is not None:
        products = list(blocks)
        blocks = (x[..., head, :, :] for head in range(options.groups[1]) for x in products)
    total = _sum_of_blocks(u.between_blocks(name), blocks, is_stored=True)
    assert total is not None
    return total


def _sum_of_blocks(u: Arithmetic, blocks: Iterable[NDArray], is_stored: bool = False) -> NDArray | None:
    """Add arrays one after the other; the first one is rounded if it is stored. Return None if there are none."""
    total: NDArray | None = None
    for block in blocks:
        if total is None:
            total = u.round(block) if is_stored else block
        else:
            total = u.apply("add", total, block)
    return total


def _of_group(u: Parts, name: str, x: NDArray, options: AttentionOptions) -> NDArray:
    """Sum the gradients of a key or value over the heads that share it."""
    return x if options.groups is None else u.part(name, "sum").sum(x, (x.ndim - 3,))


def _value_gradient(u: Parts, g: NDArray, attended: AttentionState, options: AttentionOptions) -> NDArray:
    """Return the gradient of the values."""
    powers = _after_dropout(_cached_value(attended, "powers", lambda: _probabilities(u, attended, options)), options)
    g_inputs = _cached_value(attended, "g_inputs", lambda: u.inputs("output", g, is_gradient=True))

    def to_value(rows: slice) -> NDArray:
        product = u.matmul("value", powers[..., rows, :].swapaxes(-1, -2), g[..., rows, :], u.probabilities(), g_inputs)
        return _times_compensation(u, "value", product, options)

    return _over_queries(u, "value", to_value, g.shape[-2], options)


def _score_gradient(
    u: Parts, g: NDArray, y: NDArray, attended: AttentionState, v: NDArray, options: AttentionOptions
) -> NDArray:
    """Return the gradient of the scores, P * (dP - D)."""
    powers = _cached_value(attended, "powers", lambda: _probabilities(u, attended, options))
    g_inputs = _cached_value(attended, "g_inputs", lambda: u.inputs("output", g, is_gradient=True))
    means = u.sum_rows("denominator", u.apply("denominator", "multiply", g, y))
    if options.passes is not None:
        means = u.apply("denominator", "multiply", means, u.constant("denominator", options.keep_probability))
    of_powers = u.matmul("probabilities", g, v.swapaxes(-1, -2), g_inputs, u.inputs("value", v))
    centred = u.apply("scores", "subtract", _after_dropout(of_powers, options), means)
    return u.apply("scores", "multiply", powers, centred)


def _probabilities(u: Parts, attended: AttentionState, options: AttentionOptions) -> NDArray:
    """Return exp(S - L)."""
    base, factor = attended.log_sum, attended.factor
    if factor is not None:
        base = u.apply("exponentials", "multiply", base, u.constant("exponentials", LOG2E))
    return _exponentials(u, attended.scores, attended.maximum, base, factor)


def _times_scale(u: Parts, name: str, x: NDArray, options: AttentionOptions) -> NDArray:
    """Multiply the gradient of queries or keys by the factor of the scores, and with dropout by its compensation."""
    return u.apply(name, "multiply", x, u.constant(name, options.scale * options.compensation))


def _times_compensation(u: Parts, name: str, x: NDArray, options: AttentionOptions) -> NDArray:
    """Multiply by 1 / (1 - p), with dropout."""
    return x if options.passes is None else u.apply(name, "multiply", x, u.constant(name, options.compensation))


def _cached_value(attended: AttentionState, name: str, compute: Callable[[], Any]) -> Any:
    """Return a value for several gradients, computed at the first call."""
    if name not in attended.shared:
        attended.shared[name] = compute()
    return attended.shared[name]
