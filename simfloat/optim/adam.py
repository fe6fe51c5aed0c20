"""Adam, AdamW and their relatives: Adamax, NAdam, RAdam."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params, Step
from simfloat.optim.options import Option, decay, flag, number_from_zero, several


class Adam(Optimizer):
    """m = b1 m + (1 - b1) d; v = b2 v + (1 - b2) d^2; w = w - lr (m / c1) / (sqrt(v / c2) + eps).

    With Q the rounding to `weights` and S that to `optimizer_state`, c1 = 1 - b1^t and c2 = 1 - b2^t in step t::

        d = Q(g + Q(weight_decay w))
        m = S(Q(b1 m) + Q((1 - b1) d));  v = S(Q(b2 v) + Q((1 - b2) Q(d^2)))
        u = Q(-lr Q(Q(m / c1) / Q(Q(sqrt(Q(v / c2))) + eps)))

    and w + u follows the policy's `update`. lr, betas, 1 - betas, eps, c1 and c2 are exact float64 operands; without
    weight_decay d is g. With `amsgrad`, v in the last line is the largest v so far. Kept are `exp_avg`, `exp_avg_sq`,
    `max_exp_avg_sq` and `step`. Options and their meaning are torch.optim.Adam's.

    In BF16 0.999 times v is v for many v, which then never decays: the observer's `unchanged` of `exp_avg_sq` tells. In
    FP16 an eps of 1e-8 is lost, and the square of a small gradient is zero, so that a quotient may be NaN: there eps is
    to be larger, or `weights` wider.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Kingma
    and Ba, arXiv 1412.6980; the order of operations is that of arXiv 2010.06192.

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
    kept_with: ClassVar[Mapping[str, str] | None] = {"max_exp_avg_sq": "amsgrad"}
    is_elementwise = True
    marks = {"decoupled_weight_decay": False}

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    amsgrad = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * direction, of the gradient with weight_decay * w."""
        d = step.with_decay(gradient, options.weight_decay)
        return step.multiply(-options.lr, self.direction(step, d, options))

    def direction(self, step: Step, d: NDArray, options: SimpleNamespace) -> NDArray:
        """The average of d over the root of that of d^2, both without the bias of their start at zero."""
        (b1, b2), t = options.betas, step.count()
        m = step.moment("exp_avg", d, keep=b1, take=1 - b1)
        v = step.moment("exp_avg_sq", step.multiply(d, d), keep=b2, take=1 - b2)
        if options.amsgrad:
            v = step.largest("max_exp_avg_sq", v)
        root = step.sqrt(step.divide(v, 1 - b2**t))
        return step.divide(step.divide(m, 1 - b1**t), step.add(root, options.eps))


class AdamW(Adam):
    """Adam, whose weights decay beside it and not by way of its averages.

    As in :class:`Adam`, with d = g, and::

        u = Q(-lr Q(Q(Q(m / c1) / Q(Q(sqrt(Q(v / c2))) + eps)) + Q(weight_decay w)))

    so that weight_decay meets w first, and both then lr: a decay that is lost in w is lost as part of u, to which the
    policy's `update` applies. (A factor 1 - lr * weight_decay would do nothing in BF16 below 2^-9.) Options and their
    meaning are torch.optim.AdamW's.

    Raises ValueError as Adam does. Source: Loshchilov and Hutter, arXiv 1711.05101; the order of operations is that of
    arXiv 2010.06192.

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

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * (direction + weight_decay * w)."""
        d = self.direction(step, gradient, options)
        return step.multiply(-options.lr, step.with_decay(d, options.weight_decay))


class Adamax(Optimizer):
    """m = b1 m + (1 - b1) d; n = max(b2 n, |d| + eps); w = w - lr / (1 - b1^t) m / n, with d = g + weight_decay w.

    With Q the rounding to `weights` and S that to `optimizer_state`, in step t::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  n = S(max(Q(b2 n), Q(Q(|d|) + eps)))
        u = Q(Q(-(lr / (1 - b1^t)) m) / n)

    and w + u follows the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 - (1 - b1). Factors
    and eps are exact float64 operands; a factor of -1 rounds nothing. Kept are `exp_avg`, `exp_inf` and `step`. Options
    and their meaning are torch.optim.Adamax's, whose bits these are under `simfloat.torch`.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Kingma
    and Ba, arXiv 1412.6980, algorithm 2.

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
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: the average of d over the largest size of d, which decays."""
        (b1, b2), t = options.betas, step.count()
        d = step.with_decay(gradient, options.weight_decay)
        m = step.lerp("exp_avg", d, 1 - b1)
        before = step.multiply(b2, step.previous_moment("exp_inf", d.shape))
        n = step.keep("exp_inf", step.larger(before, step.add(step.magnitude(d), options.eps)))
        return step.divide(step.times(-(options.lr / (1 - b1**t)), m), n)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum, mu = b1 (1 - 0.96^(t momentum_decay) / 2) in step t.

    With Q the rounding to `weights` and S that to `optimizer_state`, c2 = 1 - b2^t, p the product of mu up to this step
    and mu' that of the next step::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  v = S(Q(b2 v) + Q(Q((1 - b2) d) d))
        x = Q(Q(sqrt(Q(v / c2))) + eps)
        w = w + Q(Q(-lr (1 - mu) / (1 - p) d) / x)
        w = w + Q(Q(-lr mu' / (1 - p mu') m) / x)

    where both additions to w follow the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 -
    (1 - b1). Factors are exact float64 operands; one of 1 or -1 rounds nothing. p, kept as `mu_product`, is a float32
    number, as in PyTorch. With decoupled_weight_decay d is g, and w = Q((1 - lr weight_decay) w) comes first. Kept are
    `exp_avg`, `exp_avg_sq`, `mu_product` and `step`. Options and their meaning are torch.optim.NAdam's, whose bits
    these are under `simfloat.torch`.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Dozat,
    Incorporating Nesterov Momentum into Adam, ICLR workshop 2016.

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
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    momentum_decay = Option(number_from_zero)
    decoupled_weight_decay = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """The second part of what is added to the parameter, that of the average; that of the gradient is added."""
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
    """The gradient with the weight's decay; where that is decoupled, itself, and the weight is multiplied at once."""
    if not options.decoupled_weight_decay:
        return step.with_decay(gradient, options.weight_decay)
    if options.weight_decay:
        step.shrink(1 - options.lr * options.weight_decay)
    return gradient


class RAdam(Optimizer):
    """Adam with a learning rate that is rectified while the mean square knows few gradients.

    With Q the rounding to `weights` and S that to `optimizer_state`, c1 = 1 - b1^t, c2 = 1 - b2^t in step t, R =
    2 / (1 - b2) - 1 and r = R - 2 t b2^t / c2::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  v = S(Q(b2 v) + Q(Q((1 - b2) d) d))
        x = Q(lr Q(m / c1))
        u = -x, or for r > 5: -Q(Q(x Q(sqrt(c2) Q(1 / Q(Q(sqrt(v)) + eps)))) sqrt((r-4)(r-2)R / ((R-4)(R-2)r)))

    and w + u follows the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 - (1 - b1). Factors
    are exact float64 operands. With decoupled_weight_decay d is g, and w = Q((1 - lr weight_decay) w) comes first. Kept
    are `exp_avg`, `exp_avg_sq` and `step`. Options and their meaning are torch.optim.RAdam's, whose bits these are
    under `simfloat.torch` with ``foreach=False``.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Liu et
    al., arXiv 1908.03265.

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
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    decoupled_weight_decay = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: the average, over the root of the mean square once that is known well."""
        (b1, b2), t = options.betas, step.count()
        d = apply_decay(step, gradient, options)
        m = step.lerp("exp_avg", d, 1 - b1)
        v = step.mean_square("exp_avg_sq", d, b2)
        c2, longest = 1 - b2**t, 2 / (1 - b2) - 1
        x = step.multiply(options.lr, step.divide(m, 1 - b1**t))
        length = longest - 2 * t * (b2**t) / c2  # of the average that v is
        if length > 5.0:
            inverse = step.divide(1.0, step.add(step.sqrt(v), options.eps))
            x = step.multiply(x, step.multiply(c2**0.5, inverse))
            rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            x = step.multiply(rectified**0.5, x)
        return step.negative(x)
