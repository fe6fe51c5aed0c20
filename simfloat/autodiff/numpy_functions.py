"""NumPy's functions of tensors: an operation of the policy where it is exactly one, else refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simfloat.arithmetic.numpy_protocol import NumpyProtocol
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import joining
from simfloat.autodiff.record import OperationResult, Operations, Result
from simfloat.environment import in_usual_environment


@in_usual_environment
class NumpyFunctions(Operations[Result], NumpyProtocol):
    """NumPy's protocol for functions of other arrays."""

    name_in_messages: ClassVar[str] = "tensors"
    bypassed_rule: ClassVar[str] = "the policy and without a gradient"

    def _as_operand_array(self, x: Any) -> Any:
        """An operand as a tensor: one that is none is constant."""
        return x if isinstance(x, NumpyFunctions) else self.from_result(OperationResult(as_operand(x), None, None))

    def _concatenate(self, arrays: Sequence[Any], axis: int) -> Result:
        return self.from_result(joining.concatenate(arrays, axis))

    def _stack(self, arrays: Sequence[Any], axis: int) -> Result:
        return self.from_result(joining.stack(arrays, axis))

    def _where(self, condition: Any, x: Any, y: Any) -> Result:
        return self.from_result(joining.where(condition, x, y))
