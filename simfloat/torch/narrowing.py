"""Functions whose operands autocast brings to one type, so that data of PyTorch's own type do not make them wide.

These are for policies under which results take the format of their operands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.torch.forward_log import is_recomputing
from simfloat.torch.open_run import OpenRun, active_run
from simfloat.torch.tensors import Tag, numbers_of, put_tag, tag_of, tensor_of

#: The functions of recurrent layers and of their cells.
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")


#: The functions that drop whole channels; others make their factors like their operand.
CHANNEL_DROPOUTS = (
    "feature_dropout", "feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_",
)  # fmt: skip


class StraightThroughRounding(torch.autograd.Function):
    """Numbers rounded by an arithmetic; gradients pass as they are."""

    @staticmethod
    @in_usual_environment
    def forward(context: Any, x: torch.Tensor, arithmetic: Arithmetic) -> torch.Tensor:
        """The numbers, rounded."""
        rounded = tensor_of(arithmetic.round(numbers_of(x)), x.dtype)
        put_tag(rounded, Tag(arithmetic.format))
        return rounded

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The gradient."""
        return g, None


def takes_formats(run: OpenRun) -> bool:
    """Whether additions and their like take the format of their operands, and linear layers have one of their own."""
    others, products = (run.simulation.place(name, run.path) for name in ("multiply", "linear"))
    return others.is_widest and not products.is_widest


def linear_of_matrix(function: Callable[..., Any]) -> Callable[..., Any]:
    """A linear layer whose input is first made a matrix: of others PyTorch adds the bias as of any two operands."""

    @wraps(function)
    def call(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        run = active_run()
        if run is None or bias is None or not isinstance(x, torch.Tensor) or x.ndim == 2 or not takes_formats(run):
            return function(x, weight, bias)
        # PyTorch has one operation for a matrix with a bias (addmm). For other shapes it may add the bias separately,
        # which under such a policy would be an addition of a narrow and a wide operand: wide.
        rows = function(x.reshape(-1, x.shape[-1]) if x.ndim else x, weight, bias)
        return rows.reshape(*x.shape[:-1], -1)

    return call


def with_autocast_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a recurrent layer, whose initial states are first rounded as results of its products will be.

    Its input is first laid out step by step, so that the addition of a bias is a linear layer's.
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        run = active_run()
        if run is None or not takes_formats(run):
            return function(*(args if run is None else autocast_operands(run, function, args)), **options)
        # Sequences of several lengths have the sizes of their batches, integers, before the states.
        at = 2 if isinstance(args[1], torch.Tensor) and not args[1].is_floating_point() else 1
        # Initial states are FP32 data as a rule. Left wide they would make the first step's additions wide, where
        # autocast has narrow ones in all steps.
        states = args[at]
        if isinstance(states, tuple):
            narrow: Any = tuple(round_state(run, x) for x in states)
        else:
            narrow = round_state(run, states)
        x, others = args[0], args[at + 1 :]
        if x.ndim < 3 or at == 2:
            return function(*args[:at], narrow, *others, **options)
        is_turned = bool(others[-1])  # (N, L, inputs)
        steps = (x.transpose(0, 1) if is_turned else x).contiguous()
        outputs, *ends = function(steps, narrow, *others[:-1], False, **options)
        return (outputs.transpose(0, 1) if is_turned else outputs, *ends)

    return call


def autocast_operands(run: OpenRun, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a recurrent layer as the program's own autocast has them: those of an LSTM are cast as a whole.

    It is one operation there, by oneDNN or cuDNN. Of the other layers, and of LSTMs with projections or sequences of
    several lengths, autocast casts products on a CPU alone, and that by itself.
    """
    is_whole = function.__name__ == "lstm" and not isinstance(args[1], torch.Tensor)
    if not (is_whole and torch.is_autocast_enabled("cpu") and run.simulation.place("linear", run.path).is_written):
        return args
    x, (h, c), parameters, *others = args
    if h.shape != c.shape:
        return args
    dtype = torch.get_autocast_dtype("cpu")
    x, h, c, *parameters = (t.to(dtype) if t.dtype == torch.float32 else t for t in (x, h, c, *parameters))
    return x, (h, c), parameters, *others


def round_state(run: OpenRun, x: torch.Tensor) -> torch.Tensor:
    """A state as a recurrent layer takes it."""
    place = run.simulation.place("linear", run.path)
    products = (place.without_observer if is_recomputing() else place).forward
    return (
        x
        if tag_of(x).format == products.format
        else StraightThroughRounding.apply(x, products.with_operation("cast_input"))
    )


def dropout_in_operand_format(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that multiplies an operand by chance, whose factors it makes as numbers of the operand's format."""

    @wraps(function)
    def call(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        run = active_run()
        if run is None:
            return function(x, *args, **options)
        # Dropout of channels makes its factors as new numbers, of which nothing tells that they belong to x. As data
        # they would be FP32, and the product wide.
        before = run.constant_format
        run.constant_format = tag_of(x).format
        try:
            return function(x, *args, **options)
        finally:
            run.constant_format = before

    return call
