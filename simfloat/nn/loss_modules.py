"""Losses as modules: the constructor stores the options, and a call passes them to the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.nn import class_losses, losses
from simfloat.nn.arguments import as_positive, as_probability, number_from_zero
from simfloat.nn.layer import Layer
from simfloat.options import KW_ONLY, InitVar, anything, flag, option, options_of, with_options


class _Loss(Layer):
    """A loss whose `_function` takes the options by name; weights are buffers, and so belong to the state."""

    _function: ClassVar[Callable[..., Tensor]]
    reduction: str

    def _start(self, **arguments: Any) -> None:
        for name in ("weight", "pos_weight"):
            if name in arguments:
                self.register_buffer(name, arguments[name])

    def _options(self) -> dict[str, Any]:
        """Return the options and the weights by name."""
        return {name: getattr(self, name) for name in options_of(type(self))}

    def extra_repr(self) -> str:
        """Return the reduction as text, unless it is the mean."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


class _LossOfTensors(_Loss):
    """A loss with gradients of the input and of the target."""

    def forward(self, input: Operand, target: Operand) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return self._function(input, target, **self._options())


@with_options
class MSELoss(_LossOfTensors):
    """`mse_loss` as a module: the mean of (input - target)^2.

    Parameters:
        reduction: "mean", "sum", or "none" for each loss separately.

    Raises:
        ValueError: if `reduction` is not one of these.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.MSELoss()([1.0, 2.0], [1.0, 4.0])
        >>> loss.item()
        2.0
    """

    _: KW_ONLY
    reduction: str = option(losses.as_reduction, default="mean")

    _function = staticmethod(losses.mse_loss)


@with_options
class SmoothL1Loss(_LossOfTensors):
    """`smooth_l1_loss` as a module: d^2 / (2 beta) if d = |input - target| < beta, otherwise d - beta / 2.

    Parameters:
        reduction: "mean", "sum", or "none" for each loss separately.
        beta: the distance at which the parabola becomes a line, a number from 0.

    Raises:
        ValueError: if `reduction` is not one of these; if beta is negative or not finite.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.SmoothL1Loss()([1.0, 2.0], [1.5, 4.0])
        >>> loss.item()
        0.8125
    """

    _: KW_ONLY
    reduction: str = option(losses.as_reduction, default="mean")
    beta: float = option(number_from_zero, default=1.0)

    _function = staticmethod(losses.smooth_l1_loss)


@with_options
class L1Loss(_LossOfTensors):
    """`l1_loss` as a module: the mean of |input - target|.

    Parameters:
        reduction: "mean", "sum", or "none" for each loss separately.

    Raises:
        ValueError: if `reduction` is not one of these.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.L1Loss()([1.0, 2.0], [1.5, 4.0])
        >>> loss.item()
        1.25
    """

    _: KW_ONLY
    reduction: str = option(losses.as_reduction, default="mean")

    _function = staticmethod(losses.l1_loss)


@with_options
class HuberLoss(_LossOfTensors):
    """`huber_loss` as a module: d^2 / 2 if d = |input - target| < delta, otherwise delta * (d - delta / 2).

    Parameters:
        reduction: "mean", "sum", or "none" for each loss separately.
        delta: the distance at which the parabola becomes a line, a number above 0.

    Raises:
        ValueError: if `reduction` is not one of these; if delta is not a finite number above 0.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.HuberLoss(delta=0.5)([1.0, 2.0], [1.5, 4.0])
        >>> loss.item()
        0.5
    """

    reduction: str = option(losses.as_reduction, default="mean")
    delta: float = option(as_positive, default=1.0)

    _function = staticmethod(losses.huber_loss)


@with_options
class KLDivLoss(_LossOfTensors):
    """`kl_div` as a module: the Kullback-Leibler divergence of a target from an input of logarithms.

    Parameters:
        reduction: "mean", "sum", "none" for each term separately, or "batchmean".
        log_target: True if the targets are logarithms.

    Raises:
        ValueError: if `reduction` is not one of these.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.KLDivLoss(reduction="batchmean")(np.log([[0.5, 0.5]]), [[0.25, 0.75]])
        >>> loss.item()
        0.13081201910972595
    """

    _: KW_ONLY
    reduction: str = option(losses.as_divergence_reduction, default="mean")
    log_target: bool = option(flag, default=False)

    _function = staticmethod(losses.kl_div)


@with_options
class BCELoss(_Loss):
    """`binary_cross_entropy` as a module, for probabilities and targets from 0 to 1.

    Parameters:
        weight: factors of the losses, broadcast to their shape; a buffer.
        reduction: "mean", "sum", or "none" for each loss separately.

    Raises:
        ValueError: if `reduction` is not one of these.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.BCELoss()([0.5, 0.25], [1.0, 0.0])
        >>> loss.item()
        0.4904146194458008
    """

    weight: InitVar[ArrayLike | None] = option(anything, default=None)
    _: KW_ONLY
    reduction: str = option(losses.as_reduction, default="mean")

    _function = staticmethod(losses.binary_cross_entropy)

    def forward(self, input: Operand, target: ArrayLike) -> Tensor:
        """Return the loss of probabilities and a target of one shape."""
        return self._function(input, target, **self._options())


@with_options
class BCEWithLogitsLoss(_LossOfTensors):
    """`binary_cross_entropy_with_logits` as a module, for logits and targets from 0 to 1.

    Parameters:
        weight: factors of the losses, broadcast to their shape; a buffer.
        reduction: "mean", "sum", or "none" for each loss separately.
        pos_weight: the factor of the losses at positive targets; a buffer.

    Raises:
        ValueError: if `reduction` is not one of these.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.BCEWithLogitsLoss()([2.0, -1.0], [1.0, 0.0])
        >>> loss.item()
        0.22009488940238953
    """

    weight: InitVar[ArrayLike | None] = option(anything, default=None)
    _: KW_ONLY
    reduction: str = option(losses.as_reduction, default="mean")
    pos_weight: InitVar[ArrayLike | None] = option(anything, default=None)

    _function = staticmethod(losses.binary_cross_entropy_with_logits)


@with_options
class NLLLoss(_Loss):
    """`nll_loss` as a module: the mean of -input[target], for logarithms of probabilities.

    Parameters:
        weight: a factor for each class; a buffer.
        ignore_index: a target that does not count.
        reduction: "mean", "sum", or "none" for each loss separately.

    Raises:
        ValueError: if `reduction` is not one of these.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.NLLLoss()([[-0.25, -1.5]], [1])
        >>> loss.item()
        1.5
    """

    weight: InitVar[ArrayLike | None] = option(anything, default=None)
    _: KW_ONLY
    ignore_index: int = option(anything, default=-100)
    reduction: str = option(losses.as_reduction, default="mean")

    _function = staticmethod(class_losses.nll_loss)

    def forward(self, input: Operand, target: ArrayLike) -> Tensor:
        """Return the loss of an input (..., classes), or (N, classes, d1, ...), and class numbers."""
        return self._function(input, target, **self._options())


@with_options
class CrossEntropyLoss(_Loss):
    """`cross_entropy` as a module: the mean of -log_softmax(input)[target].

    Parameters:
        weight: a factor for each class; a buffer.
        ignore_index: a target that does not count.
        reduction: "mean", "sum", or "none" for each loss separately.
        label_smoothing: the share of all classes, from 0 to 1.

    Raises:
        ValueError: if `reduction` is not one of these; if label_smoothing is not from 0 to 1.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.CrossEntropyLoss()([[2.0, 0.0, 0.0]], [0])
        >>> loss.item()
        0.2395448386669159
    """

    weight: InitVar[ArrayLike | None] = option(anything, default=None)
    _: KW_ONLY
    ignore_index: int = option(anything, default=-100)
    reduction: str = option(losses.as_reduction, default="mean")
    label_smoothing: float = option(as_probability, default=0.0)

    _function = staticmethod(class_losses.cross_entropy)

    def forward(self, input: Operand, target: ArrayLike) -> Tensor:
        """Return the loss of an input (..., classes), or (N, classes, d1, ...), and class numbers."""
        return self._function(input, target, **self._options())


@with_options
class CTCLoss(_Loss):
    """`ctc_loss` as a module: -log of the probability of the targets, summed over all alignments.

    Parameters:
        blank: the class number of the blank.
        reduction: "mean", "sum", or "none" for each loss separately.
        zero_infinity: True to replace infinite losses and their gradients by zeros.

    Raises:
        ValueError: if `reduction` is not one of these.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.CTCLoss()(np.log(np.full((4, 1, 3), 1 / 3)), [[1, 2]], [4], [2])
        >>> loss.item()
        0.8431994915008545
    """

    blank: int = option(anything, default=0)
    reduction: str = option(losses.as_reduction, default="mean")
    zero_infinity: bool = option(flag, default=False)

    _function = staticmethod(class_losses.ctc_loss)

    def forward(
        self, log_probs: Operand, targets: ArrayLike, input_lengths: ArrayLike, target_lengths: ArrayLike
    ) -> Tensor:
        """Return the loss of log_probs (T, N, C), targets, and the lengths of both."""
        return self._function(log_probs, targets, input_lengths, target_lengths, **self._options())
