"""PyTorch's ReLU as one call, with its way back, where nobody looks at operations.

PyTorch makes an operation of it and one of its way back, and two more to keep the result and to find it again, each of
which comes to Python. Bits are those of the operations, to which a ReLU is left where hooks of the program's keep its
result, as a checkpoint's do: what these compute is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from simfloat.torch.open_run import running, undispatched
from simfloat.torch.phases import Backward
from simfloat.torch.recurrent_steps import gradient_of
from simfloat.torch.rules.aten_pointwise import rectified, rectified_slope
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import Tag, put_tag, tag_of
from simfloat.torch.tensor_arrays import laid_out_as, numbers_of, tensor_of
from simfloat.torch.unwatched import is_packed, is_plain, is_unwatched

Tensor = torch.Tensor
aten = torch.ops.aten


def relu_layer(function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of PyTorch's function of a ReLU."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Tensor:
        run: Any = running()
        if run is None or options or len(args) != 1 or is_packed() or not is_unwatched(run, "relu"):
            return function(*args, **options)
        (x,) = args
        if not is_plain(x) or not x.is_contiguous() or tag_of(x).is_gradient or tag_of(x).is_weight:
            return function(x)
        run.meet(aten.relu.default, "rule")
        with undispatched():
            return apply(run, x)

    return call


class ReluLayer(torch.autograd.Function):
    """(run, x) -> x where it is positive, else 0."""

    @staticmethod
    def forward(context: Any, run: RunContext, x: Tensor) -> Tensor:
        """The result."""
        place = run.simulation.place("relu", run.path)
        arithmetic, note = place.forward, run.notes.begin(place, (x,))
        made = tensor_of(rectified(arithmetic, numbers_of(x)), x.dtype)
        put_tag(made, Tag(arithmetic.format))
        if note is not None:
            note.format, note.is_one_call = arithmetic.format, True
        context.set_materialize_grads(False)
        context.run, context.note = run, note
        context.save_for_backward(made)
        return made

    @staticmethod
    def backward(context: Any, g: Tensor | None) -> tuple[None, Tensor | None]:
        """The gradient of x."""
        if g is None:
            return None, None
        if torch.is_grad_enabled():
            return None, aten.threshold_backward.default(g, *context.saved_tensors, 0)
        with undispatched():
            arithmetic = Backward(context.note, context.run.simulation, None).to_operand(0).arithmetic(())
            (result,) = context.saved_tensors
            slope = rectified_slope(arithmetic, numbers_of(g), numbers_of(result), 0)
            made = gradient_of(slope, arithmetic.format, g.dtype)
            found = laid_out_as(made, g)
            put_tag(found, tag_of(made))
            return None, found


#: Of a function of autograd, without its search for the transforms of torch.func, of which there are none.
apply: Callable[..., Tensor] = super(torch.autograd.Function, ReluLayer).apply
