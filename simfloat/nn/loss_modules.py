"""Losses as modules: the constructor stores the options, and a call passes them to the function."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.common import check_flags
from simfloat.nn.arguments import as_number, as_probability
from simfloat.nn.class_losses import cross_entropy, ctc_loss, nll_loss
from simfloat.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    check_delta,
    check_divergence,
    check_reduction,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from simfloat.nn.module import Module


class _Loss(Module):
    """A loss with its `reduction`; weights are buffers, and so belong to the state, as in torch.nn."""

    def __init__(self, reduction: str, **weights: ArrayLike | None) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction = reduction
        for name, weight in weights.items():
            self.register_buffer(name, weight)

    def extra_repr(self) -> str:
        """Return the reduction as text, unless it is the mean."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


class MSELoss(_Loss):
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

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Operand, target: Operand) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
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

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = as_number(beta, "beta", 0.0)

    def forward(self, input: Operand, target: Operand) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class L1Loss(_Loss):
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

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Operand, target: Operand) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return l1_loss(input, target, reduction=self.reduction)


class HuberLoss(_Loss):
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

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = check_delta(delta)

    def forward(self, input: Operand, target: Operand) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(Module):
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

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__()
        check_divergence(reduction)
        check_flags(log_target=log_target)
        self.reduction, self.log_target = reduction, bool(log_target)

    def forward(self, input: Operand, target: Operand) -> Tensor:
        """Return the divergence of an input of logarithms and a target of one shape."""
        return kl_div(input, target, reduction=self.reduction, log_target=self.log_target)

    def extra_repr(self) -> str:
        """Return the reduction as text, unless it is the mean."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


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

    def __init__(self, weight: ArrayLike | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)

    def forward(self, input: Operand, target: ArrayLike) -> Tensor:
        """Return the loss of probabilities and a target of one shape."""
        return binary_cross_entropy(input, target, self._buffers.get("weight"), reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
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

    def __init__(
        self, weight: ArrayLike | None = None, *, reduction: str = "mean", pos_weight: ArrayLike | None = None
    ) -> None:
        super().__init__(reduction, weight=weight, pos_weight=pos_weight)

    def forward(self, input: Operand, target: Operand) -> Tensor:
        """Return the loss of logits and a target of one shape."""
        weights: dict[str, Any] = {"weight": self._buffers.get("weight"), "pos_weight": self._buffers.get("pos_weight")}
        return binary_cross_entropy_with_logits(input, target, reduction=self.reduction, **weights)


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

    def __init__(self, weight: ArrayLike | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)
        self.ignore_index = ignore_index

    def forward(self, input: Operand, target: ArrayLike) -> Tensor:
        """Return the loss of an input (..., classes), or (N, classes, d1, ...), and class numbers."""
        weight, ignored = self._buffers.get("weight"), self.ignore_index
        return nll_loss(input, target, weight, ignore_index=ignored, reduction=self.reduction)


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

    def __init__(
        self,
        weight: ArrayLike | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction, weight=weight)
        self.ignore_index = ignore_index
        self.label_smoothing = as_probability(label_smoothing, "label_smoothing")

    def forward(self, input: Operand, target: ArrayLike) -> Tensor:
        """Return the loss of an input (..., classes), or (N, classes, d1, ...), and class numbers."""
        options: dict[str, Any] = {"ignore_index": self.ignore_index, "label_smoothing": self.label_smoothing}
        return cross_entropy(input, target, self._buffers.get("weight"), reduction=self.reduction, **options)


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

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        check_flags(zero_infinity=zero_infinity)
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self, log_probs: Operand, targets: ArrayLike, input_lengths: ArrayLike, target_lengths: ArrayLike
    ) -> Tensor:
        """Return the loss of log_probs (T, N, C), targets, and the lengths of both."""
        lengths = input_lengths, target_lengths
        return ctc_loss(log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity)
