"""Optimizers with ``fused=True``: the formula of the optimizer itself, parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from simfloat.torch.floating_operands import Arguments, Options
from simfloat.torch.handlers import Handler
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import NOTHING, Tag

Tensors = list[torch.Tensor]


def formula(kind: str) -> Callable[..., None]:
    """PyTorch's function of this name, which updates lists of tensors; of modules whose names classes have hidden."""
    return getattr(import_module(f"torch.optim.{kind}"), kind)


#: How the formulas are asked for.
RUNNING = {"foreach": False, "fused": False, "differentiable": False, "grad_scale": None, "found_inf": None}


def before(steps: Tensors) -> Tensors:
    """Counters as they were before this step, which was counted ahead."""
    return [step - 1 for step in steps]


def adam(is_decoupled: bool) -> Callable[..., None]:
    """A step of Adam, whose weights decay by way of the gradient or beside it."""

    def step(
        params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, largest: Tensors, steps: Tensors,
        **options: Any,
    ) -> None:  # fmt: skip
        formula("adam")(
            params, grads, means, squares, largest, before(steps), has_complex=False, capturable=False,
            decoupled_weight_decay=is_decoupled, **RUNNING, **options,
        )  # fmt: skip

    return step


def sgd(params: Tensors, grads: Tensors, buffers: Tensors, *, is_first_step: bool, **options: Any) -> None:
    """A step of SGD, whose first momenta are the gradients."""
    known: list[Any] = [None] * len(params) if is_first_step or not buffers else list(buffers)
    formula("sgd")(params, grads, known, has_sparse_grad=False, **_without("differentiable"), **options)
    if is_first_step:
        for buffer, begun in zip(buffers, known, strict=True):
            buffer.copy_(begun)


def adagrad(params: Tensors, grads: Tensors, sums: Tensors, steps: Tensors, **options: Any) -> None:
    """A step of Adagrad."""
    formula("adagrad")(
        params, grads, sums, before(steps), has_sparse_grad=False, has_complex=False, **RUNNING, **options
    )


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in RUNNING.items() if key != name}


class Unfused(Handler):
    """A step that PyTorch carries out inside of one operation, by the formula of its optimizer."""

    how = "loop"

    def __init__(self, step: Callable[..., None]) -> None:
        self.step = step

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Nothing: parameters and moments are written to, unless a gradient was found not to be finite."""
        found = options.pop("found_inf", None)
        options.pop("grad_scale", None)  # none that has one begins a step
        if found is None or not bool(found):
            with run.mode:
                self.step(*args, **{**options, "lr": float(options["lr"])})


#: By PyTorch's name.
TABLE: dict[str, Handler] = {
    "_fused_adam_": Unfused(adam(False)),
    "_fused_adamw_": Unfused(adam(True)),
    "_fused_sgd_": Unfused(sgd),
    "_fused_adagrad_": Unfused(adagrad),
}
