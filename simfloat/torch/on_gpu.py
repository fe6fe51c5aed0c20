"""Compute functions on a GPU by the operations of which PyTorch composes them on a CPU.

On a GPU, PyTorch has one kernel for each of these functions: dropout, RMSNorm, and the cells of LSTM and GRU. The
operations inside a kernel cannot be rounded one by one. By the operations of the CPU, the functions give the bits of
the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

from simfloat.torch import tensors
from simfloat.torch.open_run import active_run
from simfloat.torch.quick_recurrent import layers

Tensor = torch.Tensor
State = tuple[Tensor, ...]
_linear = torch._C._nn.linear


def dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """Return x, with elements set to zero with the probability p, and the others divided by 1 - p."""
    if not train or p == 0 or not x.numel():
        return x
    if p == 1:
        return x * torch.zeros((), dtype=x.dtype, device=x.device)
    return x * torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return the elements divided by their root mean square over the last axes, times the weight."""
    narrow = input.dtype in tensors.NARROW
    x = input.float() if narrow else input
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))[::-1]
    factor = x.pow(2).mean(axes, keepdim=True).add_(torch.finfo(x.dtype).eps if eps is None else eps).rsqrt()
    result = x.mul(factor)
    result = result if weight is None else result.mul(weight)
    return result.type_as(input) if narrow else result


def lstm_step(input_gates: Tensor, hidden: Tensor, state: State) -> State:
    """Return the next state of an LSTM, by its gates i, f, g, o."""
    # As in PyTorch's code for a CPU, results are written to the gates, without copies.
    i, f, g, o = hidden.add_(input_gates).unsafe_chunk(4, 1)
    i, f, g, o = i.sigmoid_(), f.sigmoid_(), g.tanh_(), o.sigmoid_()
    c = (f * state[1]).add_(i * g)
    return o * c.tanh(), c


def gru_step(input_gates: Tensor, hidden: Tensor, state: State) -> State:
    """Return the next state of a GRU, by its gates r, z, n."""
    (input_r, input_z, input_n), (r, z, n) = input_gates.unsafe_chunk(3, 1), hidden.unsafe_chunk(3, 1)
    r, z = r.add_(input_r).sigmoid_(), z.add_(input_z).sigmoid_()
    new = input_n.add(n.mul_(r)).tanh_()
    return ((state[0] - new).mul_(z).add_(new),)


#: The function for one step of a recurrent layer, by PyTorch's name of the layer.
STEPS = {"lstm": lstm_step, "gru": gru_step}


def lstm_cell(
    x: Tensor, state: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> State:
    """Return the next state of a cell of an LSTM."""
    hidden = _linear(state[0], w_hh, b_hh)
    return lstm_step(_linear(x, w_ih, b_ih), hidden, state)


def gru_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """Return the next state of a cell of a GRU."""
    input_gates = _linear(x, w_ih, b_ih)
    return gru_step(input_gates, _linear(h, w_hh, b_hh), (h,))[0]


def single_steps(
    run: Any, name: str, input_gates: Tensor, before: State, hidden: Sequence[Tensor], is_reversed: bool
) -> tuple[list[Tensor], State]:
    """Return the outputs of one layer in one direction, in the order of time, and its last state."""
    outputs, state = [], before
    for gates in input_gates.unbind(0)[:: -1 if is_reversed else 1]:
        state = STEPS[name](gates, _linear(state[0], *hidden), state)
        outputs.append(state[0])
    return outputs[::-1] if is_reversed else outputs, state


def layer_by_steps(name: str) -> Callable[..., Any]:
    """Return a function that computes a recurrent layer step by step."""

    def layer(x: Tensor, state: Any, parameters: Sequence[Tensor], has_biases: bool, *options: Any) -> Any:
        count, dropout, training, is_bidirectional, batch_first = options
        run: Any = active_run()
        return layers(
            run, name, x, state, parameters, has_biases, count, dropout, training, is_bidirectional, batch_first,
            single_steps,
        )  # fmt: skip

    return layer


#: The functions that are single kernels of PyTorch on a GPU, as compositions of operations.
COMPOSITIONS: dict[str, Callable[..., Any]] = {
    "dropout": dropout,
    "rms_norm": rms_norm,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    **{name: layer_by_steps(name) for name in STEPS},
}


def composed_on_gpu(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for PyTorch's function of this name: in a block, a composition replaces it on a GPU."""

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            x = args[0] if args else options.get("input")
            is_plain = isinstance(x, Tensor) and x.device.type != tensors.HOST and active_run() is not None
            if not is_plain or name in STEPS and not _is_rectangular(args):
                return function(*args, **options)
            return COMPOSITIONS[name](*args, **options)

        return call

    return wrapper


def _is_rectangular(arguments: Sequence[Any]) -> bool:
    """Return True for sequences of one length, in a layer without projections."""
    if len(arguments) != 9 or not isinstance(arguments[3], bool):
        return False
    _, _, parameters, has_biases, count, _, _, is_bidirectional, _ = arguments
    return len(parameters) == (4 if has_biases else 2) * count * (1 + is_bidirectional)
