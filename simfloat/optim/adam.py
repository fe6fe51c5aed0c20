"""Adam, AdamW and their relatives: Adamax, NAdam, RAdam."""

from __future__ import annotations

from types import SimpleNamespace

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Step
from simfloat.optim.options import decay, number_from_zero, several
from simfloat.options import KW_ONLY, flag, option, with_options


@with_options
class Adam(Optimizer):
    """m = b1 m + (1 - b1) d; v = b2 v + (1 - b2) d^2; w = w - lr (m / c1) / (sqrt(v / c2) + eps).

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`. In step t, c1 = 1 - b1^t and c2 = 1 -
    b2^t::

        d = Q(g + Q(weight_decay w))
        m = S(Q(b1 m) + Q((1 - b1) d));  v = S(Q(b2 v) + Q((1 - b2) Q(d^2)))
        u = Q(-lr Q(Q(m / c1) / Q(Q(sqrt(Q(v / c2))) + eps)))

    The addition w + u follows the policy's `update`. lr, betas, 1 - betas, eps, c1 and c2 are exact float64 operands.
    Without weight_decay, d is g. The state contains `exp_avg`, `exp_avg_sq`, `max_exp_avg_sq` and `step`.

    In BF16, 0.999 v rounds to v for many v, which then never decays: a recorder counts these elements as `unchanged` of
    `exp_avg_sq`. In FP16, an eps of 1e-8 is lost and the square of a small gradient is zero, so that a quotient may be
    NaN. Use a larger eps or wider `weights` there.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        betas: the decay factors b1 and b2 of the two averages, from 0 to below 1.
        eps: a number from 0, added to the root.
        weight_decay: the factor of w that is added to the gradient.
        amsgrad: True to use the largest v so far in the last line.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number; if a beta is outside [0, 1).

    Source: Kingma and Ba, arXiv 1412.6980; the order of operations is that of arXiv 2010.06192.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adam([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    kept_with = {"max_exp_avg_sq": "amsgrad"}
    is_elementwise = True
    marks = {"decoupled_weight_decay": False}

    lr: float = option(number_from_zero, default=1e-3)
    _: KW_ONLY
    betas: tuple[float, float] = option(several(decay, decay), default=(0.9, 0.999))
    eps: float = option(number_from_zero, default=1e-8)
    weight_decay: float = option(number_from_zero, default=0.0)
    amsgrad: bool = option(flag, default=False)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * direction, for the gradient plus weight_decay * w."""
        d = step.with_decay(gradient, options.weight_decay)
        return step.multiply(-options.lr, self.direction(step, d, options))

    def direction(self, step: Step, d: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the average of d divided by the root of the average of d^2, both corrected for their start at zero."""
        (b1, b2), t = options.betas, step.count()
        m = step.moment("exp_avg", d, keep=b1, take=1 - b1)
        v = step.moment("exp_avg_sq", step.multiply(d, d), keep=b2, take=1 - b2)
        if options.amsgrad:
            v = step.largest("max_exp_avg_sq", v)
        root = step.sqrt(step.divide(v, 1 - b2**t))
        return step.divide(step.divide(m, 1 - b1**t), step.add(root, options.eps))


@with_options
class AdamW(Adam):
    """Adam with decoupled weight decay: weight_decay w is added to the direction instead of the gradient.

    The formulas are those of :class:`Adam`, except d = g and::

        u = Q(-lr Q(Q(Q(m / c1) / Q(Q(sqrt(Q(v / c2))) + eps)) + Q(weight_decay w)))

    Here w is multiplied first by weight_decay, and the sum then by lr. A decay that is too small for w is therefore
    lost as part of u, to which the policy's `update` applies. (In BF16, a factor 1 - lr * weight_decay would round to 1
    if lr * weight_decay is below 2^-9.)

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        betas: the decay factors b1 and b2 of the two averages, from 0 to below 1.
        eps: a number from 0, added to the root.
        weight_decay: the factor of w that is added to the direction.
        amsgrad: True to use the largest v so far.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number; if a beta is outside [0, 1).

    Source: Loshchilov and Hutter, arXiv 1711.05101; the order of operations is that of arXiv 2010.06192.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.AdamW([weight], lr=0.1, weight_decay=0.01)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.890625 , 3.890625 ]], dtype=float32)
    """

    marks = {"decoupled_weight_decay": True}
    is_elementwise = True

    _: KW_ONLY
    weight_decay: float = option(number_from_zero, default=1e-2)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * (direction + weight_decay * w)."""
        d = self.direction(step, gradient, options)
        return step.multiply(-options.lr, step.with_decay(d, options.weight_decay))


@with_options
class Adamax(Optimizer):
    """m = b1 m + (1 - b1) d; n = max(b2 n, |d| + eps); w = w - lr / (1 - b1^t) m / n, with d = g + weight_decay w.

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`. In step t::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  n = S(max(Q(b2 n), Q(Q(|d|) + eps)))
        u = Q(Q(-(lr / (1 - b1^t)) m) / n)

    The addition w + u follows the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 - (1 - b1).
    Factors and eps are exact float64 operands; a factor of -1 does not cause a rounding. The state contains `exp_avg`,
    `exp_inf` and `step`. PyTorch's optimizer gives the same bits under `simfloat.torch`.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        betas: the decay factors b1 and b2, from 0 to below 1.
        eps: a number from 0, added to the absolute value of d.
        weight_decay: the factor of w that is added to the gradient.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number; if a beta is outside [0, 1).

    Source: Kingma and Ba, arXiv 1412.6980, algorithm 2.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adamax([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("step", "exp_avg", "exp_inf")
    kept_with = {}
    is_elementwise = True

    lr: float = option(number_from_zero, default=2e-3)
    _: KW_ONLY
    betas: tuple[float, float] = option(several(decay, decay), default=(0.9, 0.999))
    eps: float = option(number_from_zero, default=1e-8)
    weight_decay: float = option(number_from_zero, default=0.0)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: the average of d divided by the largest |d|, which decays."""
        (b1, b2), t = options.betas, step.count()
        d = step.with_decay(gradient, options.weight_decay)
        m = step.lerp("exp_avg", d, 1 - b1)
        before = step.multiply(b2, step.previous_moment("exp_inf", d.shape))
        n = step.keep("exp_inf", step.larger(before, step.add(step.magnitude(d), options.eps)))
        return step.divide(step.times(-(options.lr / (1 - b1**t)), m), n)


@with_options
class NAdam(Optimizer):
    """Adam with Nesterov's momentum, where mu = b1 (1 - 0.96^(t momentum_decay) / 2) in step t.

    Q is the rounding to `weights`, S the rounding to `optimizer_state`, and c2 = 1 - b2^t. p is the product of mu up to
    this step, and mu' is the mu of the next step::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  v = S(Q(b2 v) + Q(Q((1 - b2) d) d))
        x = Q(Q(sqrt(Q(v / c2))) + eps)
        w = w + Q(Q(-lr (1 - mu) / (1 - p) d) / x)
        w = w + Q(Q(-lr mu' / (1 - p mu') m) / x)

    Both additions to w follow the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 - (1 - b1).
    Factors are exact float64 operands; a factor of 1 or -1 does not cause a rounding. p is stored as `mu_product` in
    float32, as in PyTorch. The state also contains `exp_avg`, `exp_avg_sq` and `step`. PyTorch's optimizer gives the
    same bits under `simfloat.torch`.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        betas: the decay factors b1 and b2 of the two averages, from 0 to below 1.
        eps: a number from 0, added to the root.
        weight_decay: the factor of w that is added to the gradient.
        momentum_decay: the decay of mu.
        decoupled_weight_decay: True for d = g, and w = Q((1 - lr weight_decay) w) before the additions.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number; if a beta is outside [0, 1).

    Source: Dozat, Incorporating Nesterov Momentum into Adam, ICLR workshop 2016.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.NAdam([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.89453125, 1.890625  ],
               [2.90625   , 3.90625   ]], dtype=float32)
    """

    kept = ("step", "mu_product", "exp_avg", "exp_avg_sq")
    kept_with = {}
    is_elementwise = True

    lr: float = option(number_from_zero, default=2e-3)
    _: KW_ONLY
    betas: tuple[float, float] = option(several(decay, decay), default=(0.9, 0.999))
    eps: float = option(number_from_zero, default=1e-8)
    weight_decay: float = option(number_from_zero, default=0.0)
    momentum_decay: float = option(number_from_zero, default=4e-3)
    decoupled_weight_decay: bool = option(flag, default=False)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Add the first part of the update, from the gradient; return the second part, from the average."""
        (b1, b2), lr, t = options.betas, options.lr, step.count()
        d = apply_decay(step, gradient, options)
        mu, following = (b1 * (1.0 - 0.5 * 0.96 ** (n * options.momentum_decay)) for n in (t, t + 1))
        product = step.product("mu_product", mu)
        m = step.lerp("exp_avg", d, 1 - b1)
        v = step.mean_square("exp_avg_sq", d, b2)
        x = step.add(step.sqrt(step.divide(v, 1 - b2**t)), options.eps)
        step.advance(step.divide(step.times(-lr * (1.0 - mu) / (1.0 - product), d), x))
        return step.divide(step.times(-lr * following / (1.0 - product * following), m), x)


def apply_decay(step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
    """Return the gradient with weight decay; if the decay is decoupled, multiply the weight and return the gradient."""
    if not options.decoupled_weight_decay:
        return step.with_decay(gradient, options.weight_decay)
    if options.weight_decay:
        step.shrink(1 - options.lr * options.weight_decay)
    return gradient


@with_options
class RAdam(Optimizer):
    """Adam with a learning rate that is rectified in the first steps, when v has averaged few gradients.

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`. In step t, c1 = 1 - b1^t, c2 = 1 - b2^t, R
    = 2 / (1 - b2) - 1 and r = R - 2 t b2^t / c2::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  v = S(Q(b2 v) + Q(Q((1 - b2) d) d))
        x = Q(lr Q(m / c1))
        u = -x, or for r > 5: -Q(Q(x Q(sqrt(c2) Q(1 / Q(Q(sqrt(v)) + eps)))) sqrt((r-4)(r-2)R / ((R-4)(R-2)r)))

    The addition w + u follows the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 - (1 - b1).
    Factors are exact float64 operands. The state contains `exp_avg`, `exp_avg_sq` and `step`. PyTorch's optimizer gives
    the same bits under `simfloat.torch` with ``foreach=False``.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        betas: the decay factors b1 and b2 of the two averages, from 0 to below 1.
        eps: a number from 0, added to the root.
        weight_decay: the factor of w that is added to the gradient.
        decoupled_weight_decay: True for d = g, and w = Q((1 - lr weight_decay) w) before the addition.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number; if a beta is outside [0, 1).

    Source: Liu et al., arXiv 1908.03265.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.RAdam([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.80078125, 1.6015625 ],
               [2.40625   , 3.203125  ]], dtype=float32)
    """

    kept = ("step", "exp_avg", "exp_avg_sq")
    kept_with = {}
    is_elementwise = True

    lr: float = option(number_from_zero, default=1e-3)
    _: KW_ONLY
    betas: tuple[float, float] = option(several(decay, decay), default=(0.9, 0.999))
    eps: float = option(number_from_zero, default=1e-8)
    weight_decay: float = option(number_from_zero, default=0.0)
    decoupled_weight_decay: bool = option(flag, default=False)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: the average, divided by the root of the mean square once r > 5."""
        (b1, b2), t = options.betas, step.count()
        d = apply_decay(step, gradient, options)
        m = step.lerp("exp_avg", d, 1 - b1)
        v = step.mean_square("exp_avg_sq", d, b2)
        c2, longest = 1 - b2**t, 2 / (1 - b2) - 1
        x = step.multiply(options.lr, step.divide(m, 1 - b1**t))
        length = longest - 2 * t * (b2**t) / c2  # the effective number of gradients in v
        if length > 5.0:
            inverse = step.divide(1.0, step.add(step.sqrt(v), options.eps))
            x = step.multiply(x, step.multiply(c2**0.5, inverse))
            rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            x = step.multiply(rectified**0.5, x)
        return step.negative(x)
