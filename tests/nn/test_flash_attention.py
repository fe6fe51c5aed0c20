"""Attention by blocks of keys: a program with fractions that rounds one number at a time, forward and backward."""

import math
from dataclasses import replace
from fractions import Fraction

import gmpy2
import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests import mpfr

NAME = "scaled_dot_product_attention"
RNG = np.random.default_rng(3)
#: Heads, queries, keys, the width of a key and of a value; the number of keys is not a multiple of a block.
HEADS, L, S, E, V = 2, 3, 7, 4, 3
Q, K, W = (RNG.standard_normal(shape) for shape in ((HEADS, L, E), (HEADS, S, E), (HEADS, S, V)))
SLOPES = RNG.standard_normal((HEADS, L, V))

ROLES = dict(compute=sf.BF16, compute_gradients=sf.E5M2, activations=sf.FP16, gradients=sf.Format(8, 9))
PLAIN = sf.Policy(**ROLES, accumulate=sf.Format(8, 18), accumulate_gradients=sf.Format(8, 16), reduce=sf.FP32)
SCALED = sf.Policy(
    compute=sf.scaled(sf.E4M3, sf.per_tensor()), compute_gradients=sf.scaled(sf.E5M2, sf.per_tensor()),
    activations=sf.BF16, reduce=sf.FP32,
)  # fmt: skip


def round_to(format, x, rounding=sf.nearest_even):
    """A real number rounded by the definition."""
    return Fraction(round_value(Fraction(x), format, rounding))


class Program:
    """The steps of one head, one number at a time; roles and parts are those of a policy and a kernel."""

    def __init__(self, policy, kernel, scale, kept_share, scales):
        self.recipe, self.kernel, self.share, self.scales = policy.recipe("", NAME), kernel, kept_share, scales
        self.scale, self.inner = scale, self.recipe.reduce.result

    def of(self, part):
        """The format of a part; that of `output` concerns only O between blocks."""
        return (part not in ("probabilities", "output") and getattr(self.kernel, part, None)) or self.inner

    def cast(self, role, name, numbers):
        """The elements of an operand, and the factor by which they were multiplied."""
        cast = self.recipe.__dict__[role]
        if name == "probabilities" and self.kernel.probabilities is not None:
            cast = self.kernel.probabilities
        format = getattr(cast, "format", cast)
        if getattr(cast, "scale", None) is None and not (name == "probabilities" and self.kernel.shift):
            return [[round_to(format, x) for x in row] for row in numbers], Fraction(1)
        factor = Fraction(2) ** self.kernel.shift if name == "probabilities" else self.scales[name]
        return [[round_to(format, x * factor, sf.nearest_even.saturating()) for x in row] for row in numbers], factor

    def product(self, part, a, b, backward=False):
        """a b^T of pairs of elements and factors, summed one after the other."""
        sums = (self.recipe.accumulate_gradients if backward else self.recipe.accumulate).format
        (rows, one), (columns, other) = a, b
        result = []
        for row in rows:
            result.append([])
            for column in columns:
                total = Fraction(0)
                for x, y in zip(row, column, strict=True):
                    total = round_to(sums, total + x * y)
                result[-1].append(round_to(self.of(part), total / (one * other)))
        return result

    def sum(self, part, numbers):
        total = Fraction(0)
        for x in numbers:
            total = round_to(self.recipe.reduce.format, total + x)
        return round_to(self.of(part), total)

    def function(self, part, function, *operands):
        return round_to(self.of(part), *mpfr.to_odd(function, *(np.array([float(x)]) for x in operands)))

    def exponential(self, score, base, factor):
        """exp(score - base), or exp2(fma(score, factor, -base))."""
        part = self.of("exponentials")
        if factor is None:
            return self.function("exponentials", gmpy2.exp, round_to(part, score - base))
        return self.function("exponentials", gmpy2.exp2, round_to(part, score * factor - base))

    def forward(self, q, k, v, allowed, addend, kept):
        kernel, part = self.kernel, self.of
        self.q, self.k = self.cast("compute", "query", q), self.cast("compute", "key", k)
        self.v, self.kept, self.allowed = self.cast("compute", "value", v), kept, allowed
        scores = self.product("scores", self.q, self.k)
        binary = kernel.exponential == "exp2"
        self.is_raw = binary and self.scale > 0 and addend is None
        if not self.is_raw:
            scale = round_to(part("scores"), self.scale)
            scores = [[round_to(part("scores"), x * scale) for x in row] for row in scores]
            if addend is not None:
                scores = [[round_to(part("scores"), x + y) for x, y in zip(*rows, strict=True)]
                          for rows in zip(scores, addend, strict=True)]  # fmt: skip
        log2e = math.log2(math.e)
        factor = round_to(part("exponentials"), log2e * (self.scale if self.is_raw else 1)) if binary else None
        self.scores, self.factor, self.log_sums, self.maxima, results = scores, factor, [], [], []
        starts = list(range(0, len(k), kernel.block_keys))
        for i, row in enumerate(scores):
            highest = total = output = None
            for start in starts[::-1] if kernel.reverse else starts:
                keys = range(start, min(start + kernel.block_keys, len(k)))
                seen = [row[j] for j in keys if allowed[i][j]]
                before, highest = highest, max([*seen, *([] if highest is None else [highest])], default=None)
                top = Fraction(0) if highest is None else highest
                base = round_to(part("exponentials"), top * factor) if binary else top
                powers = [self.exponential(row[j], base, factor) if allowed[i][j] else Fraction(0) for j in keys]
                summed = self.sum("denominator", powers)
                chosen = [[p if kept[i][j] else Fraction(0) for p, j in zip(powers, keys, strict=True)]]
                columns = [[self.v[0][j][n] for j in keys] for n in range(len(v[0]))]
                added = self.product("output", self.cast("compute", "probabilities", chosen), (columns, self.v[1]))[0]
                between = kernel.output or self.inner
                if total is None:
                    total, output = summed, [round_to(between, x) for x in added]
                    continue
                fall = round_to(part("exponentials"), (top if before is None else before) - top)
                fall = round_to(part("exponentials"), fall * factor) if binary else fall
                rescaling = self.function("exponentials", gmpy2.exp2 if binary else gmpy2.exp, fall)
                total = round_to(part("denominator"), rescaling * total + summed)
                output = [round_to(between, round_to(between, rescaling * x) + y)
                          for x, y in zip(output, added, strict=True)]  # fmt: skip
            total = total or Fraction(1)
            inverse = round_to(part("denominator"), 1 / total)
            if self.share != 1:
                inverse = round_to(part("denominator"), inverse * round_to(part("denominator"), 1 / self.share))
            logarithm = self.function("denominator", gmpy2.log, total)
            scale = round_to(part("denominator"), self.scale) if self.is_raw else 1
            self.log_sums.append(round_to(part("denominator"), top * scale + logarithm))
            self.maxima.append(top)
            results.append([round_to(self.recipe.activations, round_to(part("output"), x * inverse)) for x in output])
        self.results = results
        return results

    def back_to_scores(self, g):
        """The gradients of the values, and those of the scores."""
        part, inner = self.of, self.inner
        shares, queries, keys = round_to(inner, 1 / self.share), range(len(g)), range(len(self.k[0]))
        own = self.cast("compute_gradients", "gradient", g)
        powers, slopes, log2e = [], [], round_to(part("exponentials"), math.log2(math.e))
        of_powers = self.product("probabilities", own, self.v, backward=True)
        for i in queries:
            base = self.log_sums[i] if self.factor is None else round_to(part("exponentials"), self.log_sums[i] * log2e)
            powers.append([self.exponential(self.scores[i][j], base, self.factor) if self.allowed[i][j] else Fraction(0)
                           for j in keys])  # fmt: skip
            mean = self.sum(
                "denominator",
                [round_to(part("denominator"), x * y) for x, y in zip(g[i], self.results[i], strict=True)],
            )
            if self.share != 1:
                mean = round_to(part("denominator"), mean * round_to(part("denominator"), self.share))
            centred = [round_to(part("scores"), (of_powers[i][j] if self.kept[i][j] else 0) - mean) for j in keys]
            slopes.append([round_to(part("scores"), x * y) for x, y in zip(powers[i], centred, strict=True)])
        chosen = [[p if self.kept[i][j] else Fraction(0) for j, p in enumerate(powers[i])] for i in queries]
        by_key = self.cast("compute", "probabilities", transpose(chosen))
        of_values = None
        for rows in self.blocks_of_queries(len(g)):
            pair = ([row[rows] for row in by_key[0]], by_key[1]), (transpose(own[0][rows]), own[1])
            added = self.product("value", *pair, backward=True)
            if self.share != 1:
                added = [[round_to(inner, x * shares) for x in row] for row in added]
            of_values = self.add_block(of_values, added, self.kernel.block_queries)
        self.of_values = of_values
        return slopes

    def blocks_of_queries(self, queries):
        size = self.kernel.block_queries or queries
        return [slice(start, start + size) for start in range(0, queries, size)]

    def add_block(self, total, block, is_stored):
        """The sum of blocks so far, in the format of gradients if it is stored between blocks."""
        format = self.recipe.activation_gradients if is_stored else self.inner
        if total is None:
            return [[round_to(format, x) for x in row] for row in block]
        return [
            [round_to(format, x + y) for x, y in zip(*rows, strict=True)] for rows in zip(total, block, strict=True)
        ]

    def backward(self, slopes):
        """The gradients of query, key and value."""
        inner, role, keys = self.inner, self.recipe.activation_gradients, range(len(self.k[0]))
        numbers, factor = self.cast("compute_gradients", "slopes", slopes)
        scale = round_to(inner, self.scale * (1 / self.share))
        in_blocks, of_keys, of_queries = self.kernel.block_queries, None, None
        for rows in self.blocks_of_queries(len(slopes)):
            pair = (transpose(numbers[rows]), factor), (transpose(self.q[0][rows]), self.q[1])
            added = [[round_to(inner, x * scale) for x in row] for row in self.product("key", *pair, backward=True)]
            of_keys = self.add_block(of_keys, added, in_blocks)
        for start in range(0, len(keys), self.kernel.block_keys):
            block = slice(start, start + self.kernel.block_keys)
            pair = ([row[block] for row in numbers], factor), (transpose(self.k[0][block]), self.k[1])
            added = self.product("query", *pair, backward=True)
            if in_blocks:
                added = [[round_to(inner, x * scale) for x in row] for row in added]
            of_queries = self.add_block(of_queries, added, in_blocks)
        if not in_blocks:
            of_queries = [[round_to(inner, x * scale) for x in row] for row in of_queries]
        return [[[round_to(role, x) for x in row] for row in rows] for rows in (of_queries, of_keys, self.of_values)]


def transpose(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def fractions(x):
    return np.vectorize(Fraction, otypes=[object])(x).tolist()


def tensor_scale(format, numbers):
    """The scale of a whole operand, a quotient in float32."""
    return Fraction(float(np.float32(np.float64(format.max) / np.float32(np.abs(numbers).max()))))


def expected_results(policy, kernel, allowed, addend, kept, scale, share):
    """The results and gradients of all heads, as arrays."""
    names = {"query": (Q, sf.E4M3), "key": (K, sf.E4M3), "value": (W, sf.E4M3), "gradient": (SLOPES, sf.E5M2)}
    programs, results, slopes = [], [], []
    for h in range(HEADS):
        of_head = kernel.scales == "heads"
        scales = {name: tensor_scale(f, x[h] if of_head else x) for name, (x, f) in names.items()}
        programs.append(Program(policy, kernel, scale, share, scales))
        operands = (fractions(x[h]) for x in (Q, K, W))
        results.append(programs[h].forward(*operands, allowed, None if addend is None else fractions(addend), kept[h]))
        slopes.append(programs[h].back_to_scores(fractions(SLOPES[h])))
    every = np.array(slopes, float)
    for h, program in enumerate(programs):
        program.scales["slopes"] = tensor_scale(sf.E5M2, every[h] if kernel.scales == "heads" else every)
    gradients = zip(*(program.backward(one) for program, one in zip(programs, slopes, strict=True)), strict=True)
    return [np.array(rows, float) for rows in (results, *gradients)]


ALL = np.ones((L, S), bool)
FIRST_ROW_EMPTY = RNG.random((L, S)) < 0.6
FIRST_ROW_EMPTY[0], FIRST_ROW_EMPTY[1, :4] = False, False
CASES = {
    "plain": (sf.flash_attention(3), {}),
    "one block": (sf.flash_attention(9), {}),
    "powers of 2, from the last block": (sf.flash_attention(3, reverse=True, exponential="exp2"), {}),
    "parts": (
        sf.flash_attention(
            2, scores=sf.TF32, exponentials=sf.Format(8, 15), denominator=sf.Format(8, 12), output=sf.BF16,
            probabilities=sf.FP16,
        ),
        {},
    ),
    "parts, powers of 2": (
        sf.flash_attention(
            2, exponential="exp2", exponentials=sf.Format(8, 9), denominator=sf.Format(8, 9), probabilities=sf.FP32
        ),
        {"is_causal": True},
    ),
    "blocks of queries": (sf.flash_attention(3, block_queries=2), {"dropout_p": 0.3}),
    "causal": (sf.flash_attention(3), {"is_causal": True}),
    "causal, powers of 2": (sf.flash_attention(2, reverse=True, exponential="exp2"), {"is_causal": True}),
    "booleans, rows without keys": (sf.flash_attention(3, exponential="exp2"), {"attn_mask": FIRST_ROW_EMPTY}),
    "numbers": (sf.flash_attention(3), {"attn_mask": RNG.standard_normal((L, S))}),
    "numbers, powers of 2": (sf.flash_attention(3, exponential="exp2"), {"attn_mask": RNG.standard_normal((L, S))}),
    "negative scale": (sf.flash_attention(3, exponential="exp2"), {"scale": -0.7}),
    "dropout": (sf.flash_attention(3), {"dropout_p": 0.4}),
    "FP8": (sf.flash_attention(3), {"is_causal": True}, SCALED),
    "FP8, scales of heads": (sf.flash_attention(3, scales="heads", shift=8), {}, SCALED),
    "FP8, as FlashAttention-3": (
        replace(sf.attention_kernels["flash-attention-3-fp8"], block_keys=4), {"attn_mask": FIRST_ROW_EMPTY}, SCALED,
    ),
    "shift": (sf.flash_attention(3, probabilities=sf.E4M3, shift=8), {"dropout_p": 0.25}),
}  # fmt: skip


def computed_results(policy, kernel, options, q=Q, k=K, v=W, g=SLOPES):
    with sf.simulate(policy.override(operation=NAME, fused=kernel)):
        operands = [sf.Tensor(x, requires_grad=True) for x in (q, k, v)]
        y = sf.nn.scaled_dot_product_attention(*operands, **options)
        y.backward(g)
    return [y.data, *(x.grad for x in operands)]


def dropout_mask(p):
    """The weights of a dropout of ones as the first call of a simulation."""
    with sf.simulate("fp32"):
        return sf.nn.dropout.dropout(np.ones((HEADS, L, S)), p).data != 0


@pytest.mark.parametrize("name", CASES)
def test_each_step_is_rounded_once_in_the_stated_order(name):
    kernel, options, policy = (*CASES[name], PLAIN)[:3]
    mask, p = options.get("attn_mask"), options.get("dropout_p", 0.0)
    allowed = np.tril(ALL) if options.get("is_causal") else ALL if mask is None or mask.dtype != bool else mask
    addend = None if mask is None or mask.dtype == bool else mask
    kept = dropout_mask(p) if p else np.ones((HEADS, L, S), bool)
    found = computed_results(policy, kernel, options)
    want = expected_results(policy, kernel, allowed, addend, kept, options.get("scale", 0.5), 1 - p)
    for x, y in zip(found, want, strict=True):
        np.testing.assert_array_equal(x, y)


GIVEN = {
    "none": {},
    "causal": {"is_causal": True},
    "booleans": {"attn_mask": FIRST_ROW_EMPTY},
    "numbers": {"attn_mask": np.where(FIRST_ROW_EMPTY, 0.5, -np.inf)},
    "negative scale": {"scale": -0.3},
    "dropout": {"dropout_p": 0.4},
    "everything dropped": {"dropout_p": 1.0},
}


@pytest.mark.parametrize("options", GIVEN.values(), ids=GIVEN)
def test_in_fp64_results_and_gradients_are_those_of_the_steps(options):
    want = computed_results(sf.policies["fp64"], False, options)
    for kernel in (sf.flash_attention(3), sf.flash_attention(None, reverse=True, exponential="exp2")):
        for x, y in zip(computed_results(sf.policies["fp64"], kernel, options), want, strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-14)


@pytest.mark.parametrize("fused", [False, True, sf.flash_attention(3), sf.flash_attention(2, exponential="exp2")])
def test_heads_that_share_a_key_have_the_result_of_repeated_keys_and_the_sum_of_their_gradients(fused):
    q, g = (RNG.standard_normal((2, 4, L, size)) for size in (E, V))
    k, v = (np.stack([x, -x]) for x in (K, W))
    options = {"attn_mask": RNG.random((4, L, S)) < 0.7}
    shared = computed_results(PLAIN, fused, options | {"enable_gqa": True}, q, k, v, g)
    alone = computed_results(PLAIN, fused, options, q, *(np.repeat(x, 2, 1) for x in (k, v)), g)
    np.testing.assert_array_equal(shared[0], alone[0])
    np.testing.assert_array_equal(shared[1], alone[1])
    wide = computed_results(sf.policies["fp64"], fused, options, q, *(np.repeat(x, 2, 1) for x in (k, v)), g)
    exact = computed_results(sf.policies["fp64"], fused, options | {"enable_gqa": True}, q, k, v, g)
    for x, y in zip(exact[2:], wide[2:], strict=True):
        np.testing.assert_allclose(x, y.reshape(2, 2, 2, *y.shape[2:]).sum(2), rtol=0, atol=1e-14)


def test_without_keys_the_result_is_zero():
    found = computed_results(PLAIN, sf.flash_attention(3), {}, k=K[:, :0], v=W[:, :0])
    assert [x.shape for x in found] == [(HEADS, L, V), (HEADS, L, E), (HEADS, 0, E), (HEADS, 0, V)]
    assert not any(x.any() for x in found)


def test_a_recorder_counts_the_parts_by_name():
    recorder, kernel = sf.Recorder(), sf.flash_attention(4)
    with sf.simulate(PLAIN.override(operation=NAME, fused=kernel), observer=recorder):
        q = sf.Parameter(Q)
        sf.nn.scaled_dot_product_attention(q, K, W).sum().backward()
    queries, scores, keys = HEADS * L, HEADS * L * S, HEADS * S * (E + V)
    totals = {
        "cast_input": Q.size + keys,
        "scores": 2 * scores,  # the product and the factor
        "maximum": 2 * queries,
        "exponentials": 2 * (scores + queries),  # differences and powers, and those of the rescaling
        "denominator": 6 * queries,  # two sums, an fma, a quotient, and two steps of m + log(l)
        "probabilities": scores,
        "output": 5 * queries * V,  # two products, a rescaling, a sum, and the last factor
        NAME: queries * V,
    }
    for operation, total in totals.items():
        assert recorder.counts(phase="forward", operation=operation)["total"] == total, operation
    backward = {"exponentials": 2 * scores, "probabilities": scores, "scores": 2 * scores, "query": 4 * Q.size}
    for operation, total in backward.items():
        assert recorder.counts(phase="backward", operation=operation)["total"] == total, operation


class Attend(sf.nn.Module):
    """A layer of attention without its weights as a result."""

    def __init__(self):
        super().__init__()
        self.attention = sf.nn.MultiHeadAttention(8, 2, batch_first=True, rng=0)

    def forward(self, x):
        """Attend to x itself."""
        return self.attention(x, x, x, need_weights=False)[0]


def test_a_layer_has_the_multiply_adds_of_its_steps():
    batch = np.ones((1, 5, 8)), np.ones(1)
    counts = set()
    for fused in (False, sf.flash_attention(2)):
        policy = sf.policies["bf16-standard"].override(operation=NAME, fused=fused)
        counts.add(sf.cost(Attend(), lambda y, _: y.sum(), batch, policy).multiply_adds)
    assert counts == {4080}


@pytest.mark.parametrize("kernel", [*sf.attention_kernels.values(), CASES["parts"][0]], ids=str)
def test_a_kernel_prints_as_the_call_that_makes_it_and_policy_files_contain_it(kernel):
    assert eval(repr(kernel), vars(sf)) == kernel
    policy = PLAIN.override(operation=NAME, fused=kernel)
    assert sf.Policy.from_toml(policy.to_toml()) == sf.Policy.from_dict(policy.to_dict()) == policy
    assert eval(repr(policy), vars(sf)) == policy


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: sf.flash_attention(0), "block_keys must be a positive integer, or None for one block; got 0"),
        (
            lambda: sf.flash_attention(block_queries=((2, 32),)),
            r"block_queries must be .*such as \(\(1, 32\), \(192, 64\)\)",
        ),
        (lambda: sf.flash_attention(exponential="e"), "exponential must be one of exp, exp2; got 'e'"),
        (lambda: sf.flash_attention(scales="head"), "scales must be one of tensors, heads; got 'head'"),
        (lambda: sf.flash_attention(shift=0.5), "shift must be an integer from -64 to 64, got 0.5"),
        (lambda: sf.flash_attention(reverse=1), "reverse must be True or False, got 1"),
        (lambda: sf.flash_attention(output="bf17"), "Unknown format 'bf17'"),
        (
            lambda: PLAIN.override(operation="softmax", fused=sf.flash_attention()),
            "is a kernel of scaled_dot_product_attention, not of 'softmax': write fused=True",
        ),
        (lambda: sf.Policy.from_toml("compute='bf16'\nfused='flash_attention(0)'"), "fused: block_keys must be"),
        (
            lambda: computed_results(
                PLAIN, False, {"enable_gqa": True}, k=K[:1, :, :].repeat(3, 0), v=W[:1].repeat(3, 0)
            ),
            "heads of the query .axis -3. must be a multiple of that of key and value",
        ),
    ],
)
def test_an_invalid_option_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
