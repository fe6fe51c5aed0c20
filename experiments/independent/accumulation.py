"""Findings on sums over replicas, long sums in FP16, averages of gradients, random bits, and Muon's iteration."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from experiments.independent.narrow import (
    Array,
    Remade,
    holds,
    lies_between,
    matches,
    ratio_above,
    seeds,
    stochastically,
    to_nearest,
)

#: Significant bits.
FP16, BF16 = 11, 8


def replicas() -> tuple[Remade, Remade, Remade]:
    """Add BF16 gradients of 8 to 1024 replicas one after the other, and in a tree."""
    counts, slopes, ratios, alike = 2 ** np.arange(3, 11), [], [], []
    for seed in seeds(10):
        rng = np.random.default_rng(seed)
        errors: dict[str, list[float]] = {"ring": [], "tree": []}
        for count in counts:
            noise = to_nearest(rng.standard_normal((count, 512)), BF16)
            exact = noise.sum(axis=0)
            for name, add in (("ring", ring), ("tree", tree)):
                errors[name].append(np.sqrt(np.mean((add(noise) - exact) ** 2) / np.mean(exact**2)))
        slopes.append(np.polyfit(np.log(counts), np.log(errors["ring"]), 1)[0])
        ratios.append(errors["tree"][-1] / errors["ring"][-1])
        same = to_nearest(1 + 0.1 * rng.standard_normal((1024, 64)), BF16)
        total, exact = same[0], same.sum(axis=0)
        for row in same[1:]:
            total = stochastically(total + row, BF16, rng)
        alike.append(total.mean() / exact.mean())
    return (
        Remade(
            "replica-sums",
            "noise: in a ring errors grow",
            f"slope {np.mean(slopes):.3f}",
            lies_between(np.subtract(slopes, 0.5), -0.1, 0.1),
        ),
        Remade(
            "replica-sums",
            "at 1024 replicas a tree",
            f"{np.mean(ratios):.3f} of the ring's error",
            lies_between(np.log(ratios), -np.inf, 0),
        ),
        Remade(
            "replica-sums",
            "alike: stochastic rounding",
            f"{np.mean(alike):.4f} of the sum",
            lies_between(np.log(alike), -np.log(1.05), np.log(1.05)),
        ),
    )


def ring(parts: Array) -> Array:
    """Add the rows one after the other in BF16."""
    total = parts[0]
    for row in parts[1:]:
        total = to_nearest(total + row, BF16)
    return total


def tree(parts: Array) -> Array:
    """Add the rows in pairs, level by level, in BF16."""
    while len(parts) > 1:
        parts = to_nearest(parts[::2] + parts[1::2], BF16)
    return parts[0]


def long_sums() -> tuple[Remade, Remade]:
    """Add 16384 products of FP16 numbers in NumPy's float16, and in float32 with one rounding at the end."""
    missing, ratios = [], []
    for seed in seeds(5):
        a, b = np.random.default_rng(seed).random((2, 16384, 64)).astype(np.float16)
        products = a.astype(np.float64) * b.astype(np.float64)
        exact, narrow, wide = products.sum(axis=0), np.zeros(64, np.float16), np.zeros(64, np.float32)
        for row in products:
            narrow = (narrow.astype(np.float64) + row).astype(np.float16)
            wide = (wide.astype(np.float64) + row).astype(np.float32)
        missing.append(np.mean(1 - narrow / exact))
        errors = [np.abs(total.astype(np.float64) - exact).mean() for total in (narrow, wide.astype(np.float16))]
        ratios.append(errors[0] / errors[1])
    return (
        Remade(
            "fp32-accumulation",
            "sums of 16384 products of one sign stop growing",
            f"{100 * np.mean(missing):.1f} % are missing",
            lies_between(missing, 0.1, np.inf),
        ),
        Remade(
            "fp32-accumulation",
            "sums of 16384 products are far less accurate",
            f"{np.mean(ratios):.0f} times the error, one sign",
            ratio_above(ratios, np.ones(5), 10),
        ),
    )


def second_moments() -> tuple[Remade, Remade]:
    """Average squares of gradients in BF16 with beta2 = 0.999, and look for significands that no longer decay."""
    significands = np.arange(128, 256) / 128
    stay = [int((to_nearest(significands * beta, BF16) == significands).sum()) for beta in (0.999, 0.997, 1 - 2.0**-8)]
    ratios = []
    for seed in seeds(5):
        rng = np.random.default_rng(seed)
        nearest = exact = np.full(256, 1.0)
        for _ in range(4000):
            squares = (0.1 * rng.standard_normal(256)) ** 2
            nearest = to_nearest(to_nearest(0.999 * nearest, BF16) + to_nearest(0.001 * squares, BF16), BF16)
            exact = 0.999 * exact + 0.001 * squares
        ratios.append(np.mean(nearest) / np.mean(exact))
    return (
        Remade("optimizer-state", "BF16: no number decays", f"{stay} of 128 stay", holds(stay != [128, 38, 0])),
        Remade(
            "optimizer-state",
            "beta2 = 0.999: a second moment in BF16 stays",
            f"{np.mean(ratios):.0f} times the exact average",
            ratio_above(ratios, np.ones(5), 10),
        ),
    )


def random_bits() -> Remade:
    """Count, by fractions, the draws of N bits that round a number away: truncated (A), ties up (B), to even (C)."""
    wrong = 0
    for bits in range(1, 7):
        for extra in range(2, 11):
            mean = {"A": Fraction(0), "B": Fraction(0), "C": Fraction(0)}
            for numerator in range(2**extra):
                steps = Fraction(numerator, 2**extra) * 2**bits
                mean["A"] += Fraction(steps.__floor__(), 2**bits)
                mean["B"] += Fraction((steps + Fraction(1, 2)).__floor__(), 2**bits)
                mean["C"] += Fraction(round(steps), 2**bits)
            middle = Fraction(2**extra - 1, 2 ** (extra + 1))
            small, tie = Fraction(1, 2 ** (bits + 1)), Fraction(1, 2 ** (extra + 1))
            theory = (
                {"A": tie - small, "B": tie, "C": Fraction(0)} if extra > bits else dict.fromkeys("ABC", Fraction(0))
            )
            wrong += sum(mean[name] / 2**extra - middle != theory[name] for name in "ABC")
    return Remade("few-bit-stochastic", "N random bits round away", f"{wrong} biases differ", holds(wrong))


def small_decays() -> Remade:
    """Test if more than 1 % of the products of initial weights and 2e-5 are zero in every layer, in NumPy's float16."""
    words, shares = set(), []
    draws = (lambda rng: rng.uniform(-1 / 8, 1 / 8, 100_000), lambda rng: rng.normal(0, 0.02, 100_000))
    for draw in draws:
        zeros = []
        for seed in seeds(5):
            weights = draw(np.random.default_rng(seed)).astype(np.float16)
            weights = weights[weights != 0].astype(np.float64)
            zeros.append(float(np.mean((2e-5 * weights).astype(np.float16) == 0)))
        words.add(lies_between(zeros, 0.01, np.inf))
        shares.append(f"{100 * np.mean(zeros):.1f} %")
    verdict = "reproduced" if words == {"reproduced"} else "inconclusive"
    return Remade("regulariser-underflow", "2 lambda w underflows", " and ".join(shares), verdict)


def muon() -> tuple[Remade, Remade]:
    """Run Newton and Schulz's iteration in BF16 and in float32, with sums in float32, on 128 rows."""
    distances: dict[tuple[str, int], list[float]] = {}
    for seed in seeds(5):
        rng = np.random.default_rng(seed)
        left, right = (np.linalg.qr(rng.standard_normal((128, 128)))[0] for _ in range(2))
        g, goal = (left * np.geomspace(1, 0.01, 128)) @ right, left @ right
        for name, bits in (("BF16", BF16), ("FP32", 24)):
            for coefficients, steps in (((3.4445, -4.775, 2.0315), 5), ((15 / 8, -10 / 8, 3 / 8), 20)):
                x = iterate(g / np.linalg.norm(g), steps, coefficients, bits)
                distance = float(np.linalg.norm(x - goal) / np.linalg.norm(goal))
                distances.setdefault((name, steps), []).append(distance)
    five, twenty = ((np.array(distances["BF16", n]), np.array(distances["FP32", n])) for n in (5, 20))
    return (
        Remade(
            "muon-bf16",
            "five steps with Muon's coefficients",
            f"{five[0].mean():.3f} / {five[1].mean():.3f}, 128 rows",
            matches(*five),
        ),
        Remade(
            "muon-bf16",
            "with coefficients that converge, BF16 stops",
            f"{twenty[0].mean():.4f} / {twenty[1].mean():.1g}",
            ratio_above(*twenty, 10),
        ),
    )


def iterate(x: Array, steps: int, coefficients: tuple[float, float, float], bits: int) -> Array:
    """Return a X + (b X X' + c (X X')^2) X after some steps, with every result rounded."""
    a, b, c = coefficients
    x = to_nearest(x, bits)
    for _ in range(steps):
        gram = to_nearest(x @ x.T, bits)
        mixed = to_nearest(to_nearest(b * gram, bits) + to_nearest(c * to_nearest(gram @ gram, bits), bits), bits)
        x = to_nearest(to_nearest(a * x, bits) + to_nearest(mixed @ x, bits), bits)
    return x


def growth() -> Remade:
    """Fit the exponent of errors of FP16 sums of products of one sign, by their length up to 2048."""
    lengths, slopes = 2 ** np.arange(4, 12), []
    for seed in seeds(5):
        a, b = to_nearest(np.random.default_rng(seed).random((2, 2048, 256)), FP16)
        errors, total = [], np.zeros(256)
        for count, row in enumerate(a * b, 1):
            total = to_nearest(total + to_nearest(row, FP16), FP16)
            if count in lengths:
                exact = (a[:count] * b[:count]).sum(axis=0)
                errors.append(np.sqrt(np.mean(((total - exact) / exact) ** 2)))
        slopes.append(np.polyfit(np.log(lengths), np.log(errors), 1)[0])
    return Remade(
        "probabilistic-bounds",
        "nearest rounding, all of one sign: U(0, 1): errors grow as the root of n, as long as n u <= 1",
        f"exponent {np.mean(slopes):.2f} in FP16",
        lies_between(np.subtract(slopes, 0.5), -0.1, 0.1),
    )


def repeated_maxima() -> Remade:
    """Round v + w + a small rest of the same sign to BF16: v + w is often a tie, which the rest breaks upwards."""
    biases = []
    for seed in seeds(5):
        v, w = to_nearest(np.random.default_rng(seed).uniform(1, 2, (2, 100_000)), BF16)
        total = v + w + 1e-4
        biases.append(np.mean((to_nearest(total, BF16) - total) / np.exp2(np.floor(np.log2(total)))) * 2**BF16)
    return Remade(
        "flash-attention",
        "two equal maxima",
        f"{np.mean(biases):.3f} u",
        lies_between(biases, 0, np.inf),
    )


def add_aligned(total: Array, products: Array) -> Array:
    """Return totals plus products (rows, terms, columns), each truncated 13 bits below the largest, as on Hopper."""
    terms = np.concatenate([products, total[:, np.newaxis]], axis=1)
    largest = np.abs(terms).max(axis=1, keepdims=True)
    unit = np.exp2(np.floor(np.log2(largest, out=np.zeros_like(largest), where=largest > 0)) - 13)
    total = (np.trunc(terms / unit) * unit).sum(axis=1)
    size = np.abs(total)
    last = np.exp2(np.floor(np.log2(size, out=np.zeros_like(size), where=size > 0)) - 13)
    return np.trunc(total / last) * last


def aligned_sums() -> Remade:
    """Add 512 products of E4M3 numbers of one sign with 13 fraction bits below the largest term, 32 at a time."""
    ratios = []
    for seed in seeds(5):
        rng = np.random.default_rng(seed)
        a, b = rng.random((32, 512)), rng.random((512, 32))
        left, right = to_nearest(a, 4), to_nearest(b, 4)
        products = left[:, :, np.newaxis] * right[np.newaxis]
        total = np.zeros((32, 32))
        for start in range(0, 512, 32):
            total = add_aligned(total, products[:, start : start + 32])
        rounded = left @ right
        errors = [np.sqrt(np.mean(np.square(error))) for error in (total - rounded, rounded - a @ b)]
        ratios.append(errors[0] / errors[1])
    return Remade(
        "alignment-bits",
        "one sign: at 512 products",
        f"{np.mean(ratios):.2f} times the error of the operands",
        lies_between(np.log(ratios), 0, np.inf),
    )


def promotion() -> Remade:
    """Add 4096 products of E4M3 numbers in such sums, in one chain, and in chains of 128 that are added in FP32."""
    ratios: dict[str, list[float]] = {"uniform": [], "normal": []}
    for seed in seeds(5):
        for name, each in ratios.items():
            rng = np.random.default_rng(seed)
            draw = rng.random if name == "uniform" else rng.standard_normal
            left, right = to_nearest(draw((32, 4096)), 4), to_nearest(draw((4096, 32)), 4)
            chain, part, total = np.zeros((3, 32, 32))
            for start in range(0, 4096, 32):
                products = left[:, start : start + 32, np.newaxis] * right[np.newaxis, start : start + 32]
                chain, part = add_aligned(chain, products), add_aligned(part, products)
                if start % 128 == 96:
                    total, part = to_nearest(total + part, 24), np.zeros((32, 32))
            errors = [np.abs(result - left @ right).max() for result in (total, chain)]
            each.append(errors[0] / errors[1])
    verdicts = {lies_between(np.log(each), -np.inf, np.log(0.1)) for each in ratios.values()}
    return Remade(
        "tensor-core-generations",
        "FP8 on Hopper: FP32 promotion every 128 products",
        ", ".join(f"{name} {np.mean(each):.4f}" for name, each in ratios.items()),
        verdicts.pop() if len(verdicts) == 1 else "inconclusive",
    )
