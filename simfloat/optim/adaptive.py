"""Optimizers with a separate rate for each element: Adagrad, Adadelta, Adafactor, RMSprop."""

from __future__ import annotations

from math import sqrt
from types import SimpleNamespace

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Step
from simfloat.optim.options import (
    number_from_one,
    number_from_zero,
    number_up_to_zero,
    optional,
    several,
    share,
)
from simfloat.options import KW_ONLY, flag, option, with_options
from simfloat.simulation.updates import COMPENSATION, STEP, rmsprop


@with_options
class Adagrad(Optimizer):
    """s = s + d^2; w = w - lr / (1 + (t - 1) lr_decay) * d / (sqrt(s) + eps), with d = g + weight_decay w.

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`. In step t::

        d = Q(g + Q(weight_decay w));  s = S(s + Q(d^2))
        u = Q(-(lr / (1 + (t - 1) lr_decay)) Q(d / Q(Q(sqrt(s)) + eps)))

    The addition w + u follows the policy's `update`. weight_decay, eps and the quotient of lr are exact float64
    operands. Without weight_decay, d is g. The state contains s as `sum`, and `step`. In a narrow format s stops
    growing: a recorder counts these elements as `unchanged` of `sum`.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        lr_decay: the decay of the learning rate with the number of steps.
        weight_decay: the factor of w that is added to the gradient.
        initial_accumulator_value: the initial value of s, rounded to `optimizer_state`.
        eps: a number from 0, added to the root.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number.

    Source: Duchi, Hazan and Singer, JMLR 12, 2011.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adagrad([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("step", "sum")
    kept_with = {}
    is_elementwise = True

    lr: float = option(number_from_zero, default=1e-2)
    _: KW_ONLY
    lr_decay: float = option(number_from_zero, default=0.0)
    weight_decay: float = option(number_from_zero, default=0.0)
    initial_accumulator_value: float = option(number_from_zero, default=0.0)
    eps: float = option(number_from_zero, default=1e-10)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * d divided by the root of the sum of squares."""
        d = step.with_decay(gradient, options.weight_decay)
        step.begin("sum", options.initial_accumulator_value)
        s = step.moment("sum", step.multiply(d, d))
        lr = options.lr / (1 + (step.count() - 1) * options.lr_decay)
        return step.multiply(-lr, step.divide(d, step.add(step.sqrt(s), options.eps)))


@with_options
class Adadelta(Optimizer):
    """v = rho v + (1 - rho) d^2; x = d sqrt(a + eps) / sqrt(v + eps); a = rho a + (1 - rho) x^2; w = w - lr x.

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`::

        d = Q(g + Q(weight_decay w))
        v = S(Q(rho v) + Q(Q((1 - rho) d) d))
        x = Q(Q(Q(sqrt(Q(a + eps))) / Q(sqrt(Q(v + eps)))) d)
        a = S(Q(rho a) + Q(Q((1 - rho) x) x))
        u = Q(-lr x)

    The addition w + u follows the policy's `update`. lr, rho, 1 - rho, eps and weight_decay are exact float64 operands.
    Without weight_decay, d is g. A factor of 1 or -1, as with the default lr, does not cause a rounding. The state
    contains v as `square_avg` and a as `acc_delta`, which start as zeros, and `step`. PyTorch's optimizer gives the
    same bits under `simfloat.torch`.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        rho: the decay factor of both averages, from 0 to 1.
        eps: a number from 0, added under both roots.
        weight_decay: the factor of w that is added to the gradient.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number; if rho is above 1.

    Source: Zeiler, arXiv 1212.5701.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adadelta([weight], eps=0.01)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.6875, 1.6875],
               [2.6875, 3.6875]], dtype=float32)
    """

    kept = ("step", "square_avg", "acc_delta")
    kept_with = {}
    is_elementwise = True

    lr: float = option(number_from_zero, default=1.0)
    _: KW_ONLY
    rho: float = option(share, default=0.9)
    eps: float = option(number_from_zero, default=1e-6)
    weight_decay: float = option(number_from_zero, default=0.0)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * d * rms(previous updates) / rms(gradients)."""
        step.count()
        d = step.with_decay(gradient, options.weight_decay)
        v = step.mean_square("square_avg", d, options.rho)
        below = step.sqrt(step.add(v, options.eps))
        above = step.sqrt(step.add(step.previous_moment("acc_delta", d.shape), options.eps))
        x = step.multiply(step.divide(above, below), d)
        step.mean_square("acc_delta", x, options.rho)
        return step.times(-options.lr, x)


@with_options
class Adafactor(Optimizer):
    """Updates by g divided by the root of a second moment; for matrices, only its row and column means are stored.

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`. rms(x) = Q(sqrt(Q(Q(sum Q(x^2)) / n))) with
    sums by `reduce`. In step t, o = t^beta2_decay and r = min(lr, 1 / sqrt(t)); eps1 is eps[0], or the eps of `weights`
    if eps[0] is None::

        rate = Q(r max(eps[1], rms(w)))
        row = S(Q((1 - o) row) + Q(o Q(Q(sum Q(g^2)) / columns)));  column in the same way, over rows
        v = Q(Q(row column) / max(eps1, Q(Q(sum row) / rows)))
        x = Q(Q(1 / sqrt(max(eps1^2, v))) g)
        u = Q(-Q(rate / max(1, Q(rms(x) / d))) x)
        u = Q(u + Q(-lr Q(weight_decay w)))

    The addition w + u follows the policy's `update`. The last line is omitted without weight_decay. o, 1 - o, r, lr and
    the eps are exact float64 operands. The state contains `row_var` and `col_var`, over the last two axes, and `step`.
    A parameter with fewer than two axes has the second moment itself instead, `variance`: v = S(Q((1 - o) v) + Q(o
    Q(g^2))).

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the largest learning rate.
        beta2_decay: the exponent of o, a number that is not positive.
        eps: a pair: the lower bound of the second moment's root, or None; and the lower bound of rms(w).
        d: the largest rms of an update, a number of at least 1.
        weight_decay: the factor of w in the last line.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is not a finite number, or is outside its range.

    Source: Shazeer and Stern, arXiv 1804.04235.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adafactor([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.7890625, 1.703125 ],
               [2.71875  , 3.734375 ]], dtype=float32)
    """

    kept = (STEP, "row_var", "col_var", "variance")
    kept_with = {}

    lr: float = option(number_from_zero, default=1e-2)
    _: KW_ONLY
    beta2_decay: float = option(number_up_to_zero, default=-0.8)
    eps: tuple[float | None, float] = option(
        several(optional(number_from_zero), number_from_zero), default=(None, 1e-3)
    )
    d: float = option(number_from_one, default=1.0)
    weight_decay: float = option(number_from_zero, default=0.0)
    maximize: bool = option(flag, default=False)

    def shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the shape of every array that may be stored for a parameter of this `shape`, by name."""
        shapes_by_name: dict[str, tuple[int, ...]] = {STEP: (), COMPENSATION: shape}
        if len(shape) < 2:
            return {**shapes_by_name, "variance": shape}
        return {**shapes_by_name, "row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -rate * x, plus the decay."""
        t, (eps1, eps2) = step.count(), options.eps
        eps1 = step.format.eps if eps1 is None else eps1
        rate = step.multiply(min(options.lr, 1 / sqrt(t)), step.at_least(eps2, step.root_mean_square(step.weight)))
        v = self.second_moment(step, gradient, t**options.beta2_decay, eps1)
        x = step.multiply(step.rsqrt(step.at_least(eps1 * eps1, v)), gradient)
        excess = step.at_least(1.0, step.divide(step.root_mean_square(x), options.d))
        u = step.multiply(-step.divide(rate, excess), x)
        if options.weight_decay:
            u = step.add(u, step.multiply(-options.lr, step.multiply(options.weight_decay, step.weight)))
        return u

    def second_moment(self, step: Step, gradient: NDArray, take: float, eps1: float) -> NDArray:
        """Return the average of the squared gradient, in which the current gradient has the weight `take`."""
        keep, squares = 1 - take, step.multiply(gradient, gradient)
        if gradient.ndim < 2:
            return step.moment("variance", squares, keep=keep, take=take)
        row = step.moment("row_var", step.mean(squares, -1), keep=keep, take=take)
        column = step.moment("col_var", step.mean(squares, -2), keep=keep, take=take)
        return step.divide(step.multiply(row, column), step.at_least(eps1, step.mean(row, -2)))


@with_options
class RMSprop(Optimizer):
    """v = alpha v + (1 - alpha) d^2; w = w - lr d / (sqrt(v) + eps), with d = g + weight_decay w.

    Q is the rounding to `weights`, and S the rounding to `optimizer_state`::

        d = Q(g + Q(weight_decay w))
        v = S(Q(alpha v) + Q(Q((1 - alpha) d) d))
        u = Q(Q(-lr d) / Q(Q(sqrt(v)) + eps))

    The addition w + u follows the policy's `update`. With momentum, m starts as zeros, and::

        m = S(Q(momentum m) + Q(d / Q(Q(sqrt(v)) + eps)));  u = Q(-lr m)

    With `centered`, the root is that of Q(v + Q(-a a)), where a is the average gradient::

        a = S(a + Q((1 - alpha) Q(d - a))), or S(d - Q(alpha' Q(d - a))) with alpha' = 1 - (1 - alpha) if alpha <= 1/2

    lr, alpha, 1 - alpha, momentum, eps and weight_decay are exact float64 operands. Without weight_decay, d is g. A
    factor of 1 or -1 does not cause a rounding. The state contains `square_avg`, `grad_avg`, `momentum_buffer` and
    `step`. PyTorch's optimizer gives the same bits under `simfloat.torch`, except with momentum under stochastic
    rounding: it rounds Q(momentum m) before the quotient, and therefore takes the draws in another order.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        alpha: the decay factor of the averages.
        eps: a number from 0, added to the root.
        weight_decay: the factor of w that is added to the gradient.
        momentum: the factor of the previous m; 0 for no momentum.
        centered: True to subtract the square of the average gradient from v.
        maximize: True to maximize the loss: the gradient is negated.

    Raises:
        ValueError: if an option is negative or not a finite number.

    Source: Tieleman and Hinton, lecture 6.5 of COURSERA: Neural Networks for Machine Learning, 2012; for `centered`
    Graves, arXiv 1308.0850.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.RMSprop([weight], lr=0.01)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("step", "square_avg", "grad_avg", "momentum_buffer")
    kept_with = {"grad_avg": "centered", "momentum_buffer": "momentum"}
    is_elementwise = True

    lr: float = option(number_from_zero, default=1e-2)
    _: KW_ONLY
    alpha: float = option(number_from_zero, default=0.99)
    eps: float = option(number_from_zero, default=1e-8)
    weight_decay: float = option(number_from_zero, default=0.0)
    momentum: float = option(number_from_zero, default=0.0)
    centered: bool = option(flag, default=False)
    maximize: bool = option(flag, default=False)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * d divided by the root of the mean square."""
        return rmsprop(step, gradient, options)
