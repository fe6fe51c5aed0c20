"""Products of matrices: operands are rounded by what they are, sums go through the policy's `accumulate`."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from simfloat.torch.call import Call
from simfloat.torch.handlers import Ruled
from simfloat.torch.numbers import numbers_of
from simfloat.torch.tags import weight_path


def product(call: Call, a: torch.Tensor, b: torch.Tensor) -> NDArray:
    """a (..., m, k) times b (..., k, n)."""
    arithmetic = call.begin((*a.shape[:-1], b.shape[-1]))
    return arithmetic.matmul(numbers_of(a), numbers_of(b), *call.inputs(a, b))


def multiplied(call: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of matrices, or of a batch of them."""
    return call.tensor(product(call, a, b))


def by_vector(call: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of a matrix and a vector, or of two vectors."""
    rows = a if a.ndim > 1 else a.unsqueeze(0)
    result = product(call, rows, b.unsqueeze(-1))
    return call.tensor(result[..., 0] if a.ndim > 1 else result[0, 0])


def added(
    call: Call, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """beta * c + alpha * a @ b: the product is rounded, and so is the sum; and each factor that is not 1."""
    result = call.times(float(alpha), product(call, a, b))
    format = call.format
    call.site = call.site.beside("add", format)
    call.begin(result.shape)
    if beta == 0:
        return call.tensor(result)
    return call.tensor(call.add(result, call.times(float(beta), c)))


def added_vector(
    call: Call, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """The same for a matrix and a vector."""
    return added(call, c.unsqueeze(-1), a, b.unsqueeze(-1), beta=beta, alpha=alpha).squeeze(-1)


def added_batch(
    call: Call, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """The same for the sum of products of a batch of matrices: one sum through all of them, in their order."""
    rows = a.transpose(0, 1).reshape(a.shape[1], -1)
    return added(call, c, rows, b.reshape(-1, b.shape[-1]), beta=beta, alpha=alpha)


def added_outer(
    call: Call, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """The same for a column and a row."""
    return added(call, c, a.unsqueeze(-1), b.unsqueeze(0), beta=beta, alpha=alpha)


class Contraction(Ruled):
    """A product whose operands are those of these numbers; with a parameter it is what a linear layer does."""

    def __init__(self, rule: Any, first: int = 0) -> None:
        super().__init__("matmul", rule)
        self.first = first

    def operation_for(self, args: tuple[Any, ...]) -> str:
        """Linear with a parameter among the operands, else matmul."""
        factors = args[self.first : self.first + 2]
        return "linear" if any(weight_path(x) is not None for x in factors) else "matmul"

    def ordered(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The factors first, then what is added."""
        return operands[self.first :] + operands[: self.first]


#: By PyTorch's name; overloads that ask for the type of the result, as of mm, have no rule.
TABLE: dict[str, Contraction] = {
    "mm.default": Contraction(multiplied),
    "bmm.default": Contraction(multiplied),
    "mv": Contraction(by_vector),
    "dot": Contraction(by_vector),
    "vdot": Contraction(by_vector),
    "addr": Contraction(added_outer, 1),
    "addmm.default": Contraction(added, 1),
    "addmv": Contraction(added_vector, 1),
    "addbmm": Contraction(added_batch, 1),
    "baddbmm.default": Contraction(added, 1),
}
