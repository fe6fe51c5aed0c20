"""NumPy's functions of tensors: an operation of the policy where it is exactly one, else refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simfloat.arithmetic.numpy_protocol import NumpyProtocol
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import joining
from simfloat.autodiff.record import Made, Operations, Result
from simfloat.environment import in_usual_environment


@in_usual_environment
class NumpyFunctions(Operations[Result], NumpyProtocol):
    """NumPy's protocol for functions of other arrays."""

    called: ClassVar[str] = "tensors"
    passed_by: ClassVar[str] = "the policy and without a gradient"

    def _as_own(self, x: Any) -> Any:
        """An operand as a tensor: one that is none is constant."""
        return x if isinstance(x, NumpyFunctions) else self.made(Made(as_operand(x), None, None))

    def _joined_along(self, arrays: Sequence[Any], axis: int) -> Result:
        return self.made(joining.concatenate(arrays, axis))

    def _stacked(self, arrays: Sequence[Any], axis: int) -> Result:
        return self.made(joining.stack(arrays, axis))

    def _chosen(self, condition: Any, x: Any, y: Any) -> Result:
        return self.made(joining.where(condition, x, y))
