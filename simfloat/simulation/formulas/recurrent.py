"""The cells of recurrent layers: a forward step and its backward pass, each operation rounded once.

A cell takes the contributions of the input and of the hidden state to its gates, `input_gates` and `hidden`, (N,
gates * size) each, and its state. Operations, and sums of gradients, have the same order as in PyTorch. A gradient is
None if no result depends on the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

#: Arrays, or tensors of a front end that records operations on them.
Numbers = Any


class StepArithmetic(Protocol):
    """The arithmetic of a step of a cell."""

    def add(self, a: Numbers, b: Numbers) -> Numbers:
        """Return a + b."""

    def subtract(self, a: Numbers, b: Numbers) -> Numbers:
        """Return a - b."""

    def multiply(self, a: Numbers, b: Numbers) -> Numbers:
        """Return a * b."""

    def apply(self, operation: str, x: Numbers) -> Numbers:
        """Return a function of the catalog."""

    def relu(self, x: Numbers) -> Numbers:
        """Return x if it is above 0, otherwise 0."""

    def split(self, x: Numbers, sizes: list[int]) -> Sequence[Numbers]:
        """Return parts of these sizes along the last axis."""


class CellSlopes(Protocol):
    """The arithmetic of the backward pass of a cell: gradients are rounded in the role of activations."""

    def add(self, a: Numbers, b: Numbers) -> Numbers:
        """Return a + b."""

    def multiply(self, a: Numbers, b: Numbers) -> Numbers:
        """Return a * b."""

    def negative(self, g: Numbers) -> Numbers:
        """Return -g, exactly."""

    def sigmoid(self, g: Numbers, y: Numbers) -> Numbers:
        """Return the gradient through a sigmoid with the result y."""

    def tanh(self, g: Numbers, y: Numbers) -> Numbers:
        """Return the gradient through a tanh with the result y."""

    def relu_slope(self, g: Numbers, y: Numbers) -> Numbers:
        """Return the gradient through a ReLU with the result y."""

    def concatenate(self, parts: Sequence[Numbers]) -> Numbers:
        """Join gradients of gates; None stands for zeros."""


class Cell(NamedTuple):
    """A kind of cell: its step and its backward pass.

    `step(u, input_gates, hidden, state)` returns the next state, and further arrays that the backward pass reads.
    `functions` names the function that each of these arrays is a result of, if the backward pass reads its derivative.
    `slopes(u, gradients, further, saved, state, after, needed)` returns the gradients of input_gates and hidden, and
    the part of the gradient of the state that does not go through hidden. `gradients` belong to the state `after` the
    step; `further` are gradients of the saved arrays, if the backward pass is recorded. `needed` has a boolean for each
    part of the state before the step, and one for hidden: True if its gradient is needed.
    """

    gates: int
    functions: tuple[str, ...]  # "" for an array without a derivative
    step: Callable[..., tuple[tuple[Numbers, ...], tuple[Numbers, ...]]]
    slopes: Callable[..., tuple[Numbers, Numbers, tuple[Numbers, ...]]]


def add_gradients(u: CellSlopes, *gradients: Numbers | None) -> Numbers | None:
    """Sum gradients from left to right."""
    total = None
    for g in gradients:
        total = g if total is None else total if g is None else u.add(total, g)
    return total


def scale_gradient(u: CellSlopes, g: Numbers | None, x: Numbers) -> Numbers | None:
    """Multiply a gradient by an array."""
    return None if g is None else u.multiply(g, x)


def chain_gradient(slope: Callable[..., Numbers], g: Numbers | None, y: Numbers) -> Numbers | None:
    """Return the gradient through a function with the result y."""
    return None if g is None else slope(g, y)


def lstm_step(u: StepArithmetic, input_gates: Numbers, hidden: Numbers, state: tuple[Numbers, ...]) -> Any:
    """c' = f * c + i * g and h' = o * tanh(c'), with the gates in the order i, f, g, o."""
    size = state[1].shape[-1]
    i, f, g, o = u.split(u.add(input_gates, hidden), [size] * 4)
    f = u.apply("sigmoid", f)
    remaining = u.multiply(f, state[1])
    i, g = u.apply("sigmoid", i), u.apply("tanh", g)
    c = u.add(remaining, u.multiply(i, g))
    o, t = u.apply("sigmoid", o), u.apply("tanh", c)
    return (u.multiply(o, t), c), (i, f, g, o, t)


def lstm_slopes(
    u: CellSlopes, gradients: Any, further: Any, saved: Any, state: Any, after: Any, needed: Sequence[bool]
) -> Any:
    """Compute the backward pass of :func:`lstm_step`."""
    (g_h, g_c), (g_i, g_f, g_g, g_o, g_t), (i, f, g, o, t) = gradients, further, saved
    g_t, g_o = add_gradients(u, g_t, scale_gradient(u, g_h, o)), add_gradients(u, g_o, scale_gradient(u, g_h, t))
    g_c = add_gradients(u, g_c, chain_gradient(u.tanh, g_t, t))
    g_g, g_i = add_gradients(u, g_g, scale_gradient(u, g_c, i)), add_gradients(u, g_i, scale_gradient(u, g_c, g))
    g_before = scale_gradient(u, g_c, f) if needed[1] else None
    g_f = add_gradients(u, g_f, scale_gradient(u, g_c, state[1]))
    s_o, s_g = chain_gradient(u.sigmoid, g_o, o), chain_gradient(u.tanh, g_g, g)
    s_f, s_i = chain_gradient(u.sigmoid, g_f, f), chain_gradient(u.sigmoid, g_i, i)
    gates = u.concatenate((s_i, s_f, s_g, s_o))
    return gates, gates, (None, g_before)


def gru_step(u: StepArithmetic, input_gates: Numbers, hidden: Numbers, state: tuple[Numbers, ...]) -> Any:
    """h' = (h - n) * z + n, with the gates in the order r, z, n, and n = tanh(input_n + r * hidden_n)."""
    (h,) = state
    size = h.shape[-1]
    (input_rz, input_n), (hidden_rz, new) = (u.split(x, [2 * size, size]) for x in (input_gates, hidden))
    r, z = u.split(u.apply("sigmoid", u.add(input_rz, hidden_rz)), [size] * 2)
    n = u.apply("tanh", u.add(input_n, u.multiply(r, new)))
    d = u.subtract(h, n)
    return (u.add(u.multiply(d, z), n),), (r, z, n, new, d)


def gru_slopes(
    u: CellSlopes, gradients: Any, further: Any, saved: Any, state: Any, after: Any, needed: Sequence[bool]
) -> Any:
    """Compute the backward pass of :func:`gru_step`."""
    (g_h,), (g_r, g_z, g_n, g_new, g_d), (r, z, n, new, d) = gradients, further, saved
    g_n = add_gradients(u, g_n, g_h)
    g_z, g_d = add_gradients(u, g_z, scale_gradient(u, g_h, d)), add_gradients(u, g_d, scale_gradient(u, g_h, z))
    s_n = chain_gradient(u.tanh, add_gradients(u, g_n, None if g_d is None else u.negative(g_d)), n)
    g_r = add_gradients(u, g_r, scale_gradient(u, s_n, new))
    g_new = add_gradients(u, g_new, scale_gradient(u, s_n, r)) if needed[1] else None
    s_z, s_r = chain_gradient(u.sigmoid, g_z, z), chain_gradient(u.sigmoid, g_r, r)
    return u.concatenate((s_r, s_z, s_n)), u.concatenate((s_r, s_z, g_new)) if needed[1] else None, (g_d,)


def rnn_step(function: str) -> Callable[..., Any]:
    """Return the step h' = tanh(input_gates + hidden), or relu of the sum."""

    def step(u: StepArithmetic, input_gates: Numbers, hidden: Numbers, state: tuple[Numbers, ...]) -> Any:
        total = u.add(input_gates, hidden)
        return (u.relu(total) if function == "relu" else u.apply(function, total),), ()

    return step


def rnn_slopes(function: str) -> Callable[..., Any]:
    """Return the backward pass of `rnn_step`."""

    def slopes(
        u: CellSlopes, gradients: Any, further: Any, saved: Any, state: Any, after: Any, needed: Sequence[bool]
    ) -> Any:
        gates = chain_gradient(u.relu_slope if function == "relu" else u.tanh, gradients[0], after[0])
        return gates, gates, (None,)

    return slopes


#: Name of the function in PyTorch -> cell.
CELLS = {
    "lstm": Cell(4, ("", "", "sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"), lstm_step, lstm_slopes),
    "gru": Cell(3, ("", "sigmoid", "sigmoid", "tanh", "", ""), gru_step, gru_slopes),
    "rnn_tanh": Cell(1, ("tanh",), rnn_step("tanh"), rnn_slopes("tanh")),
    "rnn_relu": Cell(1, ("",), rnn_step("relu"), rnn_slopes("relu")),
}
