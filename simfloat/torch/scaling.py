"""torch.amp.GradScaler: the loss is scaled in its own type, and its scale is taken out of gradients by the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from simfloat.torch.handlers import Handler
from simfloat.torch.numbers import numbers_of, tensor_of
from simfloat.torch.operands import Arguments, Options
from simfloat.torch.tags import NOTHING, Tag, put_tag, tag_of

if TYPE_CHECKING:
    from simfloat.torch.engine import Engine

_scales: ContextVar[bool] = ContextVar("simfloat.torch scaling", default=False)


def is_scaling() -> bool:
    """Whether a GradScaler computes with its scale, which no policy rounds."""
    return _scales.get()


def scaling(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of GradScaler whose own multiplications are PyTorch's."""

    @wraps(method)
    def run(*args: Any, **options: Any) -> Any:
        token = _scales.set(True)
        try:
            return method(*args, **options)
        finally:
            _scales.reset(token)

    return run


class Unscale(Handler):
    """Gradients are multiplied by the inverse of the scale, each product rounded to `weights`."""

    how = "rule"

    def __call__(self, run: Engine, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Nothing: gradients are written to, and `found`, which says whether one of them is not finite."""
        gradients: Sequence[torch.Tensor] = args[0]
        found, inverse = args[1], args[2]
        for gradient in gradients:
            if not bool(torch.isfinite(gradient).all()):
                found.fill_(1.0)
            tag = tag_of(gradient)
            arithmetic = run.simulation.place("update", tag.owner or "").to_unscaled
            product = arithmetic.multiply(numbers_of(gradient), numbers_of(inverse))
            gradient.copy_(tensor_of(product, gradient.dtype))
            put_tag(gradient, tag._replace(format=arithmetic.format, is_gradient=True))
