"""Compare steps of every optimizer under narrow policies with a computation of one rounded value at a time.

The computation uses no kernels, moments or places of the package: it rounds with the definition, in the order of
operations in the documentation of each optimizer.
"""

import math
from functools import partial
from hashlib import blake2b

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.rounded import Rounded


def adam(q, s, w, g, m, t, recipe, decoupled, amsgrad=False, lr=0.01, b1=0.9, b2=0.95, eps=1e-3, decay=0.1):
    d = g if decoupled else q.add(g, q.mul(decay, w))
    m["m"] = s.add(q.mul(b1, m.get("m", 0.0)), q.mul(1 - b1, d))
    m["v"] = s.add(q.mul(b2, m.get("v", 0.0)), q.mul(1 - b2, q.mul(d, d)))
    m["top"] = np.maximum(m["v"], m.get("top", m["v"]))
    v = m["top"] if amsgrad else m["v"]
    x = q.div(q.div(m["m"], 1 - b1**t), q.add(q.sqrt(q.div(v, 1 - b2**t)), eps))
    return q.mul(-lr, q.add(x, q.mul(decay, w)) if decoupled else x)


def adagrad(q, s, w, g, m, t, recipe, lr=0.1, slower=0.5, start=0.3, eps=1e-2, decay=0.1):
    d = q.add(g, q.mul(decay, w))
    m["s"] = s.add(m.get("s", s.to(np.full(w.shape, start))), q.mul(d, d))
    return q.mul(-(lr / (1 + (t - 1) * slower)), q.div(d, q.add(q.sqrt(m["s"]), eps)))


def lion(q, s, w, g, m, t, recipe, lr=0.01, b1=0.9, b2=0.99, decay=0.1):
    before = m.get("m", np.zeros(w.shape))
    c = q.add(q.mul(b1, before), q.mul(1 - b1, g))
    m["m"] = s.add(q.mul(b2, before), q.mul(1 - b2, g))
    return q.mul(-lr, q.add(np.sign(c), q.mul(decay, w)))


def adafactor(q, s, w, g, m, t, recipe, lr=0.1, eps2=1e-3, decay=0.1):
    by, eps1 = recipe.reduce.format, recipe.weights.eps

    def mean(x, axis=None):
        return q.div(q.sum(x, by, axis), float(x.size if axis is None else x.shape[axis]))

    def average(name, x):
        m[name] = s.add(q.mul(1 - t**-0.8, m.get(name, 0.0)), q.mul(t**-0.8, x))
        return m[name]

    def rms(x):
        return q.sqrt(mean(q.mul(x, x)))

    rate = q.mul(min(lr, 1 / math.sqrt(t)), np.maximum(eps2, rms(w)))
    squares = q.mul(g, g)
    row, column = average("row", mean(squares, 1)), average("column", mean(squares, 0))
    v = q.div(q.mul(row, column), np.maximum(eps1, mean(row, 0)))
    x = q.mul(q.rsqrt(np.maximum(eps1 * eps1, v)), g)
    u = q.mul(-q.div(rate, np.maximum(1.0, q.div(rms(x), 1.0))), x)
    return q.add(u, q.mul(-lr, q.mul(decay, w)))


def muon(q, s, w, g, m, t, recipe, lr=0.1, b=0.9, decay=0.1, coefficients=(3.4445, -4.775, 2.0315)):
    compute, by = Rounded(recipe.compute), recipe.accumulate.format
    m["m"] = s.add(q.mul(b, m.get("m", 0.0)), q.mul(1 - b, g))
    x = q.add(q.mul(1 - b, g), q.mul(b, m["m"]))
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = q.div(x, max(1e-7, float(q.sqrt(q.sum(q.mul(x, x), recipe.reduce.format)))))
    c0, c1, c2 = coefficients
    for _ in range(2):
        gram = q.matmul(x, x.T, compute, by)
        inner = q.add(q.mul(c1, gram), q.mul(c2, q.matmul(gram, gram, compute, by)))
        x = q.add(q.mul(c0, x), q.matmul(inner, x, compute, by))
    x = q.mul(math.sqrt(max(1.0, w.shape[0] / w.shape[1])), x.T if tall else x)
    return q.mul(-lr, q.add(x, q.mul(decay, w)))


def times(q, factor, x):
    return factor * x if abs(factor) == 1 else q.mul(factor, x)


def average(q, s, before, x, share):
    """PyTorch's lerp, its sum by s."""
    difference = q.sub(x, before)
    if share < 0.5:
        return s.add(before, q.mul(share, difference))
    return s.add(x, -q.mul(1.0 - share, difference))


def squares(q, s, before, x, keep):
    return s.add(q.mul(keep, before), q.mul(times(q, 1 - keep, x), x))


def rmsprop(q, s, w, g, m, t, recipe, alpha, momentum, lr=0.1, eps=1e-2, decay=0.1, centered=True):
    d, zeros = q.add(g, q.mul(decay, w)), np.zeros(w.shape)
    m["v"] = squares(q, s, m.get("v", zeros), d, alpha)
    m["a"] = average(q, s, m.get("a", zeros), d, 1 - alpha)
    x = q.add(q.sqrt(q.add(m["v"], q.mul(-m["a"], m["a"]))), eps)
    if not momentum:
        return q.div(times(q, -lr, d), x)
    m["m"] = s.add(q.mul(momentum, m.get("m", zeros)), q.div(d, x))
    return q.mul(-lr, m["m"])


def nadam(q, s, w, g, m, t, recipe, b1, add, decoupled, lr=0.1, b2=0.9, eps=1e-2, decay=0.1, slower=0.5):
    zeros = np.zeros(w.shape)
    w = q.mul(1 - lr * decay, w) if decoupled else w
    d = g if decoupled else q.add(g, q.mul(decay, w))
    mu, following = (b1 * (1 - 0.5 * 0.96 ** (n * slower)) for n in (t, t + 1))
    m["p"] = m.get("p", np.float32(1)) * np.float32(mu)
    p = float(m["p"])
    m["m"] = average(q, s, m.get("m", zeros), d, 1 - b1)
    m["v"] = squares(q, s, m.get("v", zeros), d, b2)
    x = q.add(q.sqrt(q.div(m["v"], 1 - b2**t)), eps)
    w = add(w, q.div(times(q, -lr * (1 - mu) / (1 - p), d), x))
    return w, q.div(times(q, -lr * following / (1 - p * following), m["m"]), x)


def radam(q, s, w, g, m, t, recipe, b1, decoupled, lr=0.1, b2=0.9, eps=1e-2, decay=0.1):
    zeros = np.zeros(w.shape)
    w = q.mul(1 - lr * decay, w) if decoupled else w
    d = g if decoupled else q.add(g, q.mul(decay, w))
    m["m"] = average(q, s, m.get("m", zeros), d, 1 - b1)
    m["v"] = squares(q, s, m.get("v", zeros), d, b2)
    c2, most = 1 - b2**t, 2 / (1 - b2) - 1
    x, r = q.mul(lr, q.div(m["m"], 1 - b1**t)), most - 2 * t * b2**t / (1 - b2**t)
    if r > 5:
        x = q.mul(x, q.mul(c2**0.5, q.div(1.0, q.add(q.sqrt(m["v"]), eps))))
        x = q.mul(((r - 4) * (r - 2) * most / ((most - 4) * (most - 2) * r)) ** 0.5, x)
    return w, -x


def adamax(q, s, w, g, m, t, recipe, b1=0.9, lr=0.1, b2=0.9, eps=1e-2, decay=0.1):
    d, zeros = q.add(g, q.mul(decay, w)), np.zeros(w.shape)
    m["m"] = average(q, s, m.get("m", zeros), d, 1 - b1)
    m["n"] = s.to(np.maximum(q.mul(b2, m.get("n", zeros)), q.add(q.to(np.abs(d)), eps)))
    return q.div(times(q, -(lr / (1 - b1**t)), m["m"]), m["n"])


def adadelta(q, s, w, g, m, t, recipe, lr, rho=0.9, eps=1e-2, decay=0.1):
    d, zeros = q.add(g, q.mul(decay, w)), np.zeros(w.shape)
    m["v"] = squares(q, s, m.get("v", zeros), d, rho)
    root = q.sqrt(q.add(m.get("a", zeros), eps))
    x = q.mul(q.div(root, q.sqrt(q.add(m["v"], eps))), d)
    m["a"] = squares(q, s, m.get("a", zeros), x, rho)
    return times(q, -lr, x)


ADAM = dict(lr=0.01, betas=(0.9, 0.95), eps=1e-3, weight_decay=0.1)
CASES = {
    "Adam": ("Adam", ADAM, lambda *a: adam(*a, decoupled=False)),
    "Adam, amsgrad": ("Adam", {**ADAM, "amsgrad": True}, lambda *a: adam(*a, decoupled=False, amsgrad=True)),
    "AdamW": ("AdamW", ADAM, lambda *a: adam(*a, decoupled=True)),
    "Adagrad": (
        "Adagrad", dict(lr=0.1, lr_decay=0.5, initial_accumulator_value=0.3, eps=1e-2, weight_decay=0.1), adagrad,
    ),
    "RMSprop": (
        "RMSprop", dict(lr=0.1, alpha=0.9, eps=1e-2, weight_decay=0.1, centered=True),
        lambda *a: rmsprop(*a, alpha=0.9, momentum=0.0),
    ),
    "RMSprop, momentum": (
        "RMSprop", dict(lr=0.1, alpha=0.25, eps=1e-2, weight_decay=0.1, centered=True, momentum=0.5),
        lambda *a: rmsprop(*a, alpha=0.25, momentum=0.5),
    ),
    "NAdam": (
        "NAdam", dict(lr=0.1, betas=(0.9, 0.9), eps=1e-2, weight_decay=0.1, momentum_decay=0.5),
        partial(nadam, b1=0.9, decoupled=False),
    ),
    "NAdam, decoupled": (
        "NAdam",
        dict(lr=0.1, betas=(0.4, 0.9), eps=1e-2, weight_decay=0.1, momentum_decay=0.5, decoupled_weight_decay=True),
        partial(nadam, b1=0.4, decoupled=True),
    ),
    "RAdam": (
        "RAdam", dict(lr=0.1, betas=(0.9, 0.9), eps=1e-2, weight_decay=0.1), partial(radam, b1=0.9, decoupled=False),
    ),
    "RAdam, decoupled": (
        "RAdam", dict(lr=0.1, betas=(0.4, 0.9), eps=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
        partial(radam, b1=0.4, decoupled=True),
    ),
    "Adamax": ("Adamax", dict(lr=0.1, betas=(0.9, 0.9), eps=1e-2, weight_decay=0.1), adamax),
    "Adadelta": ("Adadelta", dict(eps=1e-2, weight_decay=0.1), lambda *a: adadelta(*a, lr=1.0)),
    "Adadelta, lr": ("Adadelta", dict(lr=0.3, eps=1e-2, weight_decay=0.1), lambda *a: adadelta(*a, lr=0.3)),
    "Lion": ("Lion", dict(lr=0.01, weight_decay=0.1), lion),
    "Adafactor": ("Adafactor", dict(lr=0.1, weight_decay=0.1), adafactor),
    "Muon": ("Muon", dict(lr=0.1, momentum=0.9, ns_steps=2), muon),
}  # fmt: skip

POLICIES = {
    "bf16-standard": sf.policies["bf16-standard"],
    "bf16-kahan": sf.policies["bf16-kahan"],
    "bf16-stochastic": sf.policies["bf16-stochastic"],
    "bf16-fp32-weights": sf.policies["bf16-fp32-weights"],
    "toward zero": sf.Policy(compute=sf.BF16, weights=sf.FP16, rounding=sf.toward_zero),
    "every role its own format": sf.Policy(
        compute=sf.FP16,
        weights=sf.Format(8, 12),
        optimizer_state=sf.Format(8, 10),
        accumulate=sf.Format(8, 14),
        reduce=sf.Format(8, 9),
        update="kahan",
    ),
}


def finished(q, w, u, m, update):
    """The new weight: the last addition, plain, with Kahan's compensation, or at random."""
    if update == "stochastic":
        m["added"] = m.get("added", 0) + 1
        digest = blake2b(b'[7, "w", "update", "update", null]', digest_size=8).digest()
        stream = sf.BitStream.from_state({"seed": int.from_bytes(digest, "little"), "calls": m["added"] - 1})
        return sf.add(w, u, q.format, sf.stochastic(), stream=stream)
    if update == "nearest":
        return Rounded(q.format).add(w, u)
    y = u if "c" not in m else q.sub(u, m["c"])
    s = q.add(w, y)
    m["c"] = q.sub(q.sub(s, w), y)
    return s


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case, shape", [*((case, (2, 3)) for case in CASES), ("Muon", (3, 2)), ("Adafactor", (1, 4))])
def test_steps_equal_a_computation_written_out(case, policy, shape):
    (kind, options, rule), policy = CASES[case], POLICIES[policy]
    rng, recipe = np.random.default_rng(3), policy.recipe()
    q, s = (Rounded(format, recipe.rounding) for format in (recipe.weights, recipe.optimizer_state))
    parameter = sf.Parameter(rng.standard_normal(shape))
    parameter.name = "w"
    w, kept = Rounded(recipe.weights).to(parameter.data), {}
    optimizer = getattr(sf.optim, kind)([parameter], **options)
    with sf.simulate(policy, seed=7):
        for t in range(1, 7 if kind == "RAdam" else 4):
            g = Rounded(recipe.gradients).to(rng.standard_normal(shape))
            parameter.grad = g
            optimizer.step()
            add = partial(finished, q, m=kept, update=recipe.update)
            if kind == "NAdam":
                w, u = rule(q, s, w, g, kept, float(t), recipe, add=add)
            elif kind == "RAdam":
                w, u = rule(q, s, w, g, kept, float(t), recipe)
            else:
                u = rule(q, s, w, g, kept, float(t), recipe)
            w = add(w, u)
            assert_bits(parameter.data, w)
