"""Stochastic gradient descent, Lion and Muon."""

from __future__ import annotations

from math import sqrt
from types import SimpleNamespace

from numpy.typing import NDArray

from simfloat.autodiff import Parameter
from simfloat.optim.optimizer import Optimizer, Step
from simfloat.optim.options import decay, integer, name_of, number, number_from_zero, several, word
from simfloat.options import KW_ONLY, flag, option, with_options
from simfloat.simulation.updates import sgd


@with_options
class SGD(Optimizer):
    """d = g + weight_decay * w; m = momentum * m + (1 - dampening) * d; w = w - lr * m (Nesterov: d + momentum * m).

    Every addition and product is rounded once. The addition in the formula of m is rounded to `optimizer_state`, all
    other operations to `weights`. A factor of 1 or -1 does not cause a rounding, except the factor momentum in
    the formula of m. lr, momentum, dampening and weight_decay are exact float64 operands. The last addition follows
    the policy's `update`. The state contains m as `momentum_buffer`, which starts as d.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        momentum: the factor of the previous m; 0 for no momentum.
        dampening: 1 minus the factor of d in m; it may be negative.
        weight_decay: the factor of w that is added to the gradient.
        nesterov: True to use d + momentum * m instead of m; it needs a momentum and no dampening.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is not a finite number; if an option other than dampening is negative.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.SGD([weight], lr=0.1, momentum=0.9)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.80078125, 1.6015625 ],
               [2.40625   , 3.203125  ]], dtype=float32)
    """

    kept = ("momentum_buffer",)
    kept_with = {"momentum_buffer": "momentum"}
    is_elementwise = True

    lr: float = option(number_from_zero, default=1e-3)
    _: KW_ONLY
    momentum: float = option(number_from_zero, default=0.0)
    dampening: float = option(number, default=0.0)
    weight_decay: float = option(number_from_zero, default=0.0)
    nesterov: bool = option(flag, default=False)
    maximize: bool = option(flag, default=False)

    def check(self, options: SimpleNamespace) -> None:
        """Raise ValueError if these options may not be used together."""
        if options.nesterov and (options.momentum == 0 or options.dampening != 0):
            raise ValueError("Nesterov momentum needs a momentum above zero and no dampening.")

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * m."""
        return sgd(step, gradient, options)


@with_options
class Lion(Optimizer):
    """w = w - lr (sign(b1 m + (1 - b1) g) + weight_decay w); then m = b2 m + (1 - b2) g.

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`::

        c = Q(Q(b1 m) + Q((1 - b1) g))
        u = Q(-lr Q(sign(c) + Q(weight_decay w)))
        m = S(Q(b2 m) + Q((1 - b2) g))

    The addition w + u follows the policy's `update`. lr, betas, 1 - betas and weight_decay are exact float64 operands.
    Without weight_decay, u is Q(-lr sign(c)). The state contains m as `exp_avg`, which starts as zeros.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate; the default is that of the reference code.
        betas: the factors b1 and b2, from 0 to below 1; the defaults are those of the paper.
        weight_decay: the factor of w; the default is that of the reference code.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number; if a beta is outside [0, 1).

    Source: algorithm 2 of Chen et al. 2023, arXiv 2302.06675.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Lion([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("exp_avg",)
    kept_with = {}
    is_elementwise = True

    lr: float = option(number_from_zero, default=1e-4)
    _: KW_ONLY
    betas: tuple[float, float] = option(several(decay, decay), default=(0.9, 0.99))
    weight_decay: float = option(number_from_zero, default=0.0)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * (sign(c) + weight_decay * w)."""
        b1, b2 = options.betas
        m = step.previous_moment("exp_avg", gradient.shape)
        c = step.mix(b1, m, 1 - b1, gradient)
        step.moment("exp_avg", gradient, keep=b2, take=1 - b2)
        return step.multiply(-options.lr, step.with_decay(step.sign(c), options.weight_decay))


#: The factor of the learning rate as a function of the matrix shape, for each value of `adjust_lr_fn`.
ADJUSTMENTS = {
    "original": lambda rows, columns: sqrt(max(1.0, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * sqrt(max(rows, columns)),
}


@with_options
class Muon(Optimizer):
    """Updates of matrices by their averaged gradient, which is orthogonalized by the Newton-Schulz iteration.

    Q is the rounding to `weights`, S the rounding to `optimizer_state`, a, b, c the ns_coefficients, @ a product of
    matrices, and k the factor of `adjust_lr_fn`::

        m = S(Q(momentum m) + Q((1 - momentum) g))
        G = Q(Q((1 - momentum) g) + Q(momentum m)), or m without nesterov; transposed if it has more rows than columns
        X = Q(G / max(eps, Q(sqrt(Q(sum Q(G^2))))))
        ns_steps times: A = X @ X'; B = Q(Q(b A) + Q(c (A @ A))); X = Q(Q(a X) + B @ X)
        u = Q(-lr Q(Q(k X) + Q(weight_decay w)))

    The addition w + u follows the policy's `update`. lr, momentum, 1 - momentum, the coefficients, eps, weight_decay
    and k are exact float64 operands. The state contains `momentum_buffer`.

    The products of matrices are contractions under the policy, like forward ones: operands are rounded to `compute`,
    sums follow `accumulate`, and results are rounded to `weights`, like everything that an optimizer computes. With
    operands as narrow as MXFP4 the iteration diverges. To choose other formats only for the optimizer, use
    ``policy.override(operation="update", compute=simfloat.BF16, accumulate=simfloat.FP32)``.

    torch.optim.Muon always iterates in bfloat16, including all results. The same happens here if `weights` is BF16;
    with wider weights, ``compute=simfloat.BF16`` affects only the operands. `simfloat.torch` runs PyTorch's own
    iteration.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options; all are
            matrices.
        lr: the learning rate.
        weight_decay: the factor of w in the last line.
        momentum: the decay factor of m.
        nesterov: True for the mix of g and m, False for m.
        ns_coefficients: the coefficients a, b and c of the iteration.
        eps: the lower bound of the norm of G.
        ns_steps: the number of iterations, from 0 to 99.
        adjust_lr_fn: "original" (or None) for k = sqrt(max(1, rows / columns)), "match_rms_adamw" for k = 0.2
            sqrt(max(rows, columns)).

    Raises:
        ValueError: if a parameter is not a matrix; if an option other than ns_coefficients is negative.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; "match_rms_adamw": Liu et al., arXiv 2502.16982.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Muon([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[1.0625   , 1.8984375],
               [2.890625 , 3.9375   ]], dtype=float32)
    """

    kept = ("momentum_buffer",)
    kept_with = {}

    lr: float = option(number_from_zero, default=1e-3)
    _: KW_ONLY
    weight_decay: float = option(number_from_zero, default=0.1)
    momentum: float = option(number_from_zero, default=0.95)
    nesterov: bool = option(flag, default=True)
    ns_coefficients: tuple[float, float, float] = option(
        several(number, number, number), default=(3.4445, -4.775, 2.0315)
    )
    eps: float = option(number_from_zero, default=1e-7)
    ns_steps: int = option(integer(0, 99), default=5)
    adjust_lr_fn: str | None = option(word(*ADJUSTMENTS), default=None)

    def check_parameter(self, number: int, parameter: Parameter) -> None:
        """Raise ValueError if a parameter is not a matrix."""
        if parameter.ndim != 2:
            raise ValueError(
                f"Muon updates matrices; {name_of(number, parameter)} has the shape {parameter.shape}. Give it to "
                "another optimizer, such as AdamW."
            )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * (k * X + weight_decay * w)."""
        keep = options.momentum
        m = step.moment("momentum_buffer", gradient, keep=keep, take=1 - keep)
        x = orthogonalize(step, step.mix(1 - keep, gradient, keep, m) if options.nesterov else m, options)
        k = ADJUSTMENTS[options.adjust_lr_fn or "original"](*gradient.shape)
        return step.multiply(-options.lr, step.with_decay(step.multiply(k, x), options.weight_decay))


def orthogonalize(step: Step, g: NDArray, options: SimpleNamespace) -> NDArray:
    """Return the matrix g with its singular values moved close to one."""
    if g.shape[0] > g.shape[1]:
        return orthogonalize(step, g.T, options).T
    a, b, c = options.ns_coefficients
    norm = step.sqrt(step.sum(step.multiply(g, g)))
    x = step.divide(g, step.at_least(options.eps, norm))
    for _ in range(options.ns_steps):
        gram = step.matmul(x, x.T)
        x = step.add(step.multiply(a, x), step.matmul(step.mix(b, gram, c, step.matmul(gram, gram)), x))
    return x
