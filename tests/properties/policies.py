"""Random policies: presets, and policies of random roles with overrides by path, operation and parameter."""

import numpy as np

import simfloat as sf

PRESETS = [name for name in sf.policies if name not in ("fp64", "as-written", "as-written-cuda")]
FORMATS = [sf.FP32, sf.BF16, sf.FP16, sf.E4M3, sf.E5M2, sf.Format(8, 4), sf.Format(5, 5), sf.Format(8, 10)]
ROUNDINGS = ["toward_zero", "to_odd", "toward_negative", "nearest_away", sf.stochastic(), sf.stochastic(bits=5)]
ACCUMULATORS = [
    sf.FP32,
    sf.BF16,
    sf.FP16,
    sf.exact,
    sf.pairwise(sf.FP32),
    sf.kahan(sf.BF16),
    sf.blocked(2, inner=sf.FP16, outer=sf.FP32),
    sf.sequential(sf.FP32, products=sf.BF16),
    sf.sequential(sf.BF16, rounding=sf.stochastic()),
    sf.lanes(2, sf.FP32, sf.FP32),
]
SUMS = [one for one in ACCUMULATORS if one is not sf.exact]
CASTS = [
    sf.scaled(sf.E4M3, sf.per_tensor()),
    sf.scaled(sf.E5M2, sf.delayed(3)),
    sf.scaled(sf.E4M3, sf.block(2, sf.E8M0)),
    sf.cast(sf.E5M2, sf.stochastic()),
]

VALUES = {
    "compute": [*FORMATS, *CASTS],
    "compute_gradients": [*FORMATS, *CASTS],
    "compute_weights": [*FORMATS, *CASTS],
    "weights": FORMATS,
    "activations": [*FORMATS, "widest"],
    "activation_gradients": FORMATS,
    "weight_gradients": FORMATS,
    "gradients": FORMATS,
    "accumulate": ACCUMULATORS,
    "accumulate_gradients": ACCUMULATORS,
    "reduce": SUMS,
    "rounding": ["nearest_even", *ROUNDINGS],
    "update": ["nearest", "stochastic", "kahan", sf.stochastic(bits=4)],
    "optimizer_state": FORMATS,
    "rotation": [sf.hadamard(4)],
    "fused": [True],
}
#: Roles that are rarely drawn: most policies with them have no reference.
RARE = {"rotation", "fused"}

PATHS = ["a", "b", "c", "d", "d.*", "e", "*.weight", "*.bias", "a.weight", "scale", "d.inner", "*", "?.0", "b.bias"]
OPERATIONS = [
    "linear", "add", "multiply", "relu", "tanh", "mean", "sum", "mse_loss", "update", "contraction", "pointwise",
    "reduction", "softmax", "layer_norm", "movement", ("exp", "log", "subtract"), ("add", "mean"),
]  # fmt: skip


def one_of(rng, values):
    """A value of a list."""
    return values[int(rng.integers(len(values)))]


def random_roles(rng, count):
    """So many roles, with values."""
    names = [name for name in VALUES if name not in RARE or rng.integers(8) == 0]
    chosen = rng.permutation(names)[:count]
    return {str(name): one_of(rng, VALUES[str(name)][: None if rng.integers(6) == 0 else 8]) for name in chosen}


def random_policy(rng):
    """A preset or random roles, and up to three overrides."""
    while True:
        try:
            policy = (
                sf.policies[one_of(rng, PRESETS)]
                if rng.integers(3) == 0
                else sf.Policy(**{"compute": one_of(rng, FORMATS), **random_roles(rng, int(rng.integers(6)))})
            )
            for _ in range(max(int(rng.integers(5)) - 1, 0)):
                path = one_of(rng, PATHS) if rng.integers(3) else None
                operation = one_of(rng, OPERATIONS) if path is None or rng.integers(3) == 0 else None
                policy = policy.override(path, operation=operation, **random_roles(rng, 1 + int(rng.integers(2))))
        except ValueError:  # a role that its operation does not use
            continue
        return policy


def random_generator(*seed):
    """The generator of a seed."""
    return np.random.default_rng(seed)
