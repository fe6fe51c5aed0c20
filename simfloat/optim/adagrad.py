"""Adagrad."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, flag, number_from_zero
from simfloat.optim.step import Step


class Adagrad(Optimizer):
    """s = s + d^2; w = w - lr / (1 + (t - 1) lr_decay) * d / (sqrt(s) + eps), with d = g + weight_decay w.

    With Q the rounding to `weights` and S that to `optimizer_state`, in step t::

        d = Q(g + Q(weight_decay w));  s = S(s + Q(d^2))
        u = Q(-(lr / (1 + (t - 1) lr_decay)) Q(d / Q(Q(sqrt(s)) + eps)))

    and w + u follows the policy's `update`. weight_decay, eps and the quotient of lr are exact float64 operands;
    without weight_decay d is g. s, kept as `sum`, starts as S(initial_accumulator_value). Options and their meaning are
    torch.optim.Adagrad's. In a narrow format s stops growing: the observer's `unchanged` of `sum` tells.

    Raises ValueError for options that are no finite numbers, and negative ones. Source: Duchi, Hazan and Singer, JMLR
    12, 2011.

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
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    lr_decay = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    initial_accumulator_value = Option(number_from_zero)
    eps = Option(number_from_zero)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        *,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
            maximize=maximize,
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * d over the root of the sum of squares."""
        d = step.with_decay(gradient, options.weight_decay)
        step.begin("sum", options.initial_accumulator_value)
        s = step.moment("sum", step.multiply(d, d))
        lr = options.lr / (1 + (step.count() - 1) * options.lr_decay)
        return step.multiply(-lr, step.divide(d, step.add(step.sqrt(s), options.eps)))
