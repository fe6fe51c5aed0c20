"""Recurrent layers: RNN, LSTM and GRU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from simfloat.autodiff import Parameter, Tensor, concatenate, stack
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.common import is_integer
from simfloat.nn.arguments import as_probability, as_size, generator_of
from simfloat.nn.dropout import dropout
from simfloat.nn.layer import Layer
from simfloat.nn.linear import affine
from simfloat.options import KW_ONLY, InitVar, anything, flag, option, with_options
from simfloat.simulation.formulas.recurrent import CELLS

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed

#: The state of a cell between steps: (h,) or (h, c), with h (N, output_size) and c (N, hidden_size).
State = tuple[Tensor, ...]


class Weights(NamedTuple):
    """The parameters of one layer in one direction."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None
    weight_hr: Parameter | None


class TensorSteps:
    """The arithmetic of a step, as operations of tensors."""

    def apply(self, operation: str, x: Tensor) -> Tensor:
        """Return a function of the catalog."""
        return getattr(x, operation)()

    def relu(self, x: Tensor) -> Tensor:
        """Return x if it is above 0, otherwise 0."""
        return x.relu()

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Return a + b."""
        return a + b

    def subtract(self, a: Tensor, b: Tensor) -> Tensor:
        """Return a - b."""
        return a - b

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return a * b."""
        return a * b

    def split(self, x: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        """Return parts of these sizes along the last axis."""
        return x.split(sizes, -1)


STEPS = TensorSteps()


@with_options
class Recurrent(Layer):
    """The common base of recurrent layers: parameters, and the loop over layers, directions and steps.

    The parameters of each layer k and direction are those of torch.nn: ``weight_ih_lk`` (gates * hidden_size, inputs),
    ``weight_hh_lk`` (gates * hidden_size, hidden_size), ``bias_ih_lk`` and ``bias_hh_lk``. The names for the backward
    direction end with ``_reverse``. All start uniform in +-1 / sqrt(hidden_size).

    Roundings:

    * The inputs of all steps are one contraction, to which bias_ih is added.
    * Every step is a contraction of the hidden state, to which bias_hh is added.
    * The formula of the layer follows, with one rounding per operation.
    * The gradients of weight_hh, bias_hh and weight_hr are sums over steps, from the last step to the first.

    Parameters:
        input_size: the size of the last axis of the input.
        hidden_size: the size of the hidden state.
        num_layers: the number of stacked layers.
        bias: False for layers without bias.
        batch_first: True for inputs and outputs (N, L, ...) instead of (L, N, ...).
        dropout: the probability of dropout between layers in training.
        bidirectional: True for a second direction, from the last step to the first.
        proj_size: the size to which h is projected, only for LSTM; 0 for no projection.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.
    """

    cell = "rnn_tanh"  # in `simulation.formulas.recurrent`
    gates = 1
    states = 1  # h, or h and c

    input_size: int = option(as_size)
    hidden_size: int = option(as_size)
    num_layers: int = option(as_size, default=1)
    bias: bool = option(flag, default=True)
    batch_first: bool = option(flag, default=False)
    dropout: float = option(as_probability, default=0.0)
    bidirectional: bool = option(flag, default=False)
    proj_size: int = option(anything, default=0)
    _: KW_ONLY
    rng: InitVar[Seed] = option(anything, default=None)

    def _start(self, **arguments: Any) -> None:
        self.proj_size = self._projection(self.proj_size)
        generator, bound = generator_of(arguments["rng"]), 1 / math.sqrt(self.hidden_size)
        for layer in range(self.num_layers):
            shapes = self._shapes(self.output_size * self.directions if layer else self.input_size)
            for direction in range(self.directions):
                for name, shape in shapes.items():
                    initial = generator.uniform(-bound, bound, shape)
                    setattr(self, f"{name}{_suffix(layer, direction)}", Parameter(initial))

    def _projection(self, proj_size: Any) -> int:
        """Return the size to which h is projected, or 0; raise ValueError if it is invalid."""
        if not is_integer(proj_size, 0, self.hidden_size - 1) or (proj_size and self.states == 1):
            whose = "" if self.states > 1 else " It is for LSTM only."
            raise ValueError(
                f"proj_size must be an integer from 0, for no projection, below hidden_size, {self.hidden_size}; got "
                f"{proj_size!r}.{whose}"
            )
        return int(proj_size)

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters of a layer by name, in the order of torch."""
        rows = self.gates * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, self.output_size)}
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {}
        return shapes | ({"weight_hr": (self.proj_size, self.hidden_size)} if self.proj_size else {})

    @property
    def directions(self) -> int:
        """2 for a bidirectional layer, otherwise 1."""
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """The size of h: proj_size if it is not 0, otherwise hidden_size."""
        return self.proj_size or self.hidden_size

    def forward(self, input: Operand, hx: Any = None) -> tuple[Tensor, Any]:
        """Return h of the last layer at every step, and the final states of all layers.

        Parameters:
            input: an array (L, N, input_size), or (N, L, input_size) with batch_first; without N for one sequence.
            hx: the initial states (num_layers * directions, N, output_size). For LSTM, a pair (h, c) of such arrays,
                where c has hidden_size. By default zeros.

        Returns:
            h of the last layer (L, N, directions * output_size), with the axes in the order of the input, and the final
                states in the form of `hx`.

        Raises:
            ValueError: if a shape does not fit; if the sequence has no steps.
        """
        x = as_tensor(input)
        is_single = x.ndim == 2
        x = self._sequence(x)
        before = self._before(hx, x.shape[1], is_single)
        after: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.training:
                x = dropout(x, self.dropout)
            sides = []
            for direction in range(self.directions):
                state = before[len(after)] if before else None
                outputs, last = self._run(x, self._weights(layer, direction), direction, state)
                sides.append(outputs)
                after.append(last)
            x = sides[0] if len(sides) == 1 else concatenate(sides, -1)
        ends = [stack(states) for states in zip(*after, strict=True)]
        if is_single:
            x, ends = x.squeeze(1), [end.squeeze(1) for end in ends]
        elif self.batch_first:
            x = x.swapaxes(0, 1)
        return x, ends[0] if self.states == 1 else tuple(ends)

    def _sequence(self, x: Tensor) -> Tensor:
        """Return the input as (L, N, input_size)."""
        turned = self.batch_first and x.ndim == 3
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size or not x.shape[turned]:
            axes = "(N, L, " if self.batch_first else "(L, N, "
            raise ValueError(
                f"{type(self).__name__} takes {axes}{self.input_size}) or (L, {self.input_size}) with at least one "
                f"step, got {x.shape}."
            )
        return x.swapaxes(0, 1) if turned else x.unsqueeze(1) if x.ndim == 2 else x

    def _weights(self, layer: int, direction: int) -> Weights:
        suffix = _suffix(layer, direction)
        return Weights(**{name: getattr(self, name + suffix, None) for name in Weights._fields})  # type: ignore[arg-type]

    def _run(self, x: Tensor, weights: Weights, direction: int, state: State | None) -> tuple[Tensor, State]:
        """Run one layer in one direction on x (L, N, inputs); return h at every step (L, N, output_size), and the last
        state.
        """
        input_gates = affine(x, weights.weight_ih, weights.bias_ih)
        now = state or self._zeros(input_gates)
        steps, cell = input_gates.unbind(), CELLS[self.cell]
        outputs = []
        for step in reversed(steps) if direction else steps:
            (h, *others), _ = cell.step(STEPS, step, affine(now[0], weights.weight_hh, weights.bias_hh), now)
            now = (h if weights.weight_hr is None else h.linear(weights.weight_hr), *others)
            outputs.append(now[0])
        return stack(outputs[::-1] if direction else outputs), now

    def _zeros(self, gates: Tensor) -> State:
        """Return states of zeros, marked as numbers of the format of the gates."""
        sizes, states = (self.output_size, self.hidden_size)[: self.states], []
        for size in sizes:
            zeros = Tensor(np.zeros((gates.shape[1], size), gates.numbers.dtype, like=gates.numbers))
            zeros.format = gates.format
            states.append(zeros)
        return tuple(states)

    def _before(self, hx: Any, batch: int, is_single: bool) -> list[State] | None:
        """Return the initial states for each layer and direction, or None if they were not given."""
        if hx is None:
            return None
        initial_states = hx if self.states > 1 else (hx,)
        if not isinstance(initial_states, tuple | list) or len(initial_states) != self.states:
            raise ValueError(f"{type(self).__name__} takes a pair (h, c) of initial states, got {type(hx).__name__}.")
        number = self.num_layers * self.directions
        tensors = [as_tensor(state) for state in initial_states]
        for size, tensor in zip((self.output_size, self.hidden_size), tensors, strict=False):
            shape = (number, size) if is_single else (number, batch, size)
            if tensor.shape != shape:
                raise ValueError(f"An initial state of this {type(self).__name__} is {shape}, got {tensor.shape}.")
        parts = [(t.unsqueeze(1) if is_single else t).unbind() for t in tensors]
        return list(zip(*parts, strict=True))

    def extra_repr(self) -> str:
        """Return the arguments of the constructor as text, except defaults."""
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        usual |= {"proj_size": 0}
        arguments = [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join([str(self.input_size), str(self.hidden_size), *arguments])


class RNN(Recurrent):
    """h' = tanh(W_ih x + b_ih + (W_hh h + b_hh)), or relu instead of tanh.

    :class:`~simfloat.nn.recurrent.Recurrent` describes the names of the parameters and the roundings.

    Parameters:
        input_size: the size of the last axis of the input.
        hidden_size: the size of the hidden state.
        num_layers: the number of stacked layers.
        nonlinearity: "tanh" or "relu".
        bias: False for layers without bias.
        batch_first: True for inputs and outputs (N, L, ...) instead of (L, N, ...).
        dropout: the probability of dropout between layers in training.
        bidirectional: True for a second direction, from the last step to the first.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if `nonlinearity` is unknown; if a size is not a positive integer.

    Source: Elman, Cognitive Science 14, 1990.

    Examples:
        >>> layer = sf.nn.RNN(3, 4, batch_first=True, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     outputs, last = layer(np.ones((2, 5, 3)))
        >>> outputs.shape
        (2, 5, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        rng: Seed = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}.")
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, rng=rng)
        self.nonlinearity, self.cell = nonlinearity, f"rnn_{nonlinearity}"


class LSTM(Recurrent):
    """c' = f * c + i * g and h' = o * tanh(c').

    i, f and o are sigmoids of their gates, and g is the tanh of its gate. The parameters contain the gates in the order
    i, f, g, o. With a `proj_size`, h' is additionally multiplied by ``weight_hr_lk`` (proj_size, hidden_size), which is
    one more contraction per step.

    :class:`~simfloat.nn.recurrent.Recurrent` describes the names of the parameters and the roundings.

    Parameters:
        input_size: the size of the last axis of the input.
        hidden_size: the size of h and c.
        num_layers: the number of stacked layers.
        bias: False for layers without bias.
        batch_first: True for inputs and outputs (N, L, ...) instead of (L, N, ...).
        dropout: the probability of dropout between layers in training.
        bidirectional: True for a second direction, from the last step to the first.
        proj_size: the size to which h is projected; 0 for no projection.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer; if proj_size is not below hidden_size.

    Source: Hochreiter and Schmidhuber, Neural Computation 9, 1997; for projections Sak, Senior and Beaufays, arXiv
    1402.1128.

    Examples:
        >>> layer = sf.nn.LSTM(3, 4, batch_first=True, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     outputs, last = layer(np.ones((2, 5, 3)))
        >>> outputs.shape
        (2, 5, 4)
    """

    cell, gates, states = "lstm", 4, 2


class GRU(Recurrent):
    """h' = (h - n) * z + n with n = tanh(W_in x + b_in + r * (W_hn h + b_hn)).

    r and z are sigmoids of their gates. The reset r is applied after the product with h, as in torch.nn. The parameters
    contain the gates in the order r, z, n.

    :class:`~simfloat.nn.recurrent.Recurrent` describes the names of the parameters and the roundings.

    Parameters:
        input_size: the size of the last axis of the input.
        hidden_size: the size of the hidden state.
        num_layers: the number of stacked layers.
        bias: False for layers without bias.
        batch_first: True for inputs and outputs (N, L, ...) instead of (L, N, ...).
        dropout: the probability of dropout between layers in training.
        bidirectional: True for a second direction, from the last step to the first.
        proj_size: must be 0; only LSTM has projections.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer.

    Source: Cho et al., arXiv 1406.1078.

    Examples:
        >>> layer = sf.nn.GRU(3, 4, batch_first=True, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     outputs, last = layer(np.ones((2, 5, 3)))
        >>> outputs.shape
        (2, 5, 4)
    """

    cell, gates = "gru", 3


def _suffix(layer: int, direction: int) -> str:
    return f"_l{layer}{'_reverse' if direction else ''}"
