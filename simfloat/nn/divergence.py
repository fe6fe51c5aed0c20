"""The divergence of two distributions."""

from __future__ import annotations

from simfloat.autodiff import Tensor
from simfloat.autodiff.by_formula import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.environment import in_usual_environment
from simfloat.formulas import loss_formulas
from simfloat.formulas.rounded import Slope
from simfloat.nn.losses import REDUCTIONS, reduce_tensor_losses


@in_usual_environment
def kl_div(input: Operand, target: Operand, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """The mean of y * log(y) - y * input, of targets y: Kullback and Leibler's divergence.

    input are logarithms of probabilities; so are the targets with `log_target`, and the terms exp(y) * (y - input).
    `reduction` "sum" gives their sum, "batchmean" that divided by the length of the first axis, "none" each of them. It
    is made of operations that policies know by their own names.

    Raises ValueError if the shapes differ.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     loss = sf.nn.kl_div(np.log([[0.5, 0.5]]), [[0.25, 0.75]], reduction="batchmean")
        >>> loss.item()
        0.13081201910972595
    """
    check_divergence(reduction)
    x, y = as_tensor(input), as_tensor(target)
    if x.shape != y.shape:
        raise ValueError(f"kl_div needs input and target of one shape, got {x.shape} and {y.shape}.")
    if log_target:
        terms = y.exp() * (y - x)
    else:
        terms = xlogy(y, y) - y * x
    if reduction != "batchmean":
        return reduce_tensor_losses(terms, reduction)
    return terms.sum() / float(x.shape[0] if x.ndim else 1)


def xlogy(x: Operand, y: Operand) -> Tensor:
    """x * log(y), and 0 where x is."""
    slopes: tuple[Slope, ...] = (
        lambda u, g, outputs, x, y: loss_formulas.xlogy_to_x(u, g, x, y),
        lambda u, g, outputs, x, y: loss_formulas.xlogy_to_y(u, g, x, y),
    )
    return tensor_of(composite_operation("xlogy", loss_formulas.xlogy, slopes, x, y, reads="operands"))


def check_divergence(reduction: str) -> None:
    """Raise ValueError for what is no reduction of a divergence."""
    reductions = (*REDUCTIONS, "batchmean")
    if reduction not in reductions:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, reductions))}, got {reduction!r}.")
