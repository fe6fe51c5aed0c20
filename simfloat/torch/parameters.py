"""The parameters of a model: their paths, and the format that they are stored in."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.formats import nearest_even
from simfloat.simulation import Simulation
from simfloat.torch.numbers import NARROW, numbers_of, tensor_of
from simfloat.torch.tags import Tag, forget_tag, put_tag


class Parameters:
    """The parameters of a run's model, by path; one that occurs twice has the path that is listed first."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.by_path: dict[str, torch.nn.Parameter] = {}

    def begin(self, model: torch.nn.Module) -> None:
        """Bring every parameter into its format, and know its memory by its path."""
        for path, parameter in model.named_parameters():
            if is_lazy(parameter):
                raise ValueError(
                    f"The parameter {path!r} has no shape yet; call the model once on a sample before it is simulated."
                )
            self.by_path[path] = parameter
            self._simulation.note_path(path)
            self.conform(path, parameter)

    def end(self) -> None:
        """Know the memory no more."""
        for parameter in self.by_path.values():
            forget_tag(parameter)
        self.by_path.clear()

    def conform(self, path: str, tensor: torch.Tensor) -> None:
        """Round a parameter's numbers to `weights`; ValueError where its type does not hold that format."""
        format = self._simulation.place("update", path).recipe.weights
        if tensor.is_complex() or tensor.dtype in NARROW or tensor.device.type != "cpu":
            raise ValueError(
                f"The parameter {path!r} is {tensor.dtype} on {tensor.device}; simulated are float32 and float64 on "
                "the CPU, in which numbers of narrow formats travel: use model.float().cpu()."
            )
        if not format.fits_float32 and tensor.dtype != torch.float64:
            raise ValueError(
                f"The parameter {path!r} is stored in {format}, its role weights, which {tensor.dtype} does not hold; "
                "make the model and its data double, by model.double()."
            )
        numbers = numbers_of(tensor)
        rounded = round_array(numbers, Target(format, nearest_even, carrier_of(format)))
        # Writing to a parameter ends the use of what was recorded with it, as between two blocks of one step.
        if not (np.array_equal(rounded, numbers) and np.array_equal(np.signbit(rounded), np.signbit(numbers))):
            with torch.no_grad():
                tensor.detach().copy_(tensor_of(rounded, tensor.dtype))
        put_tag(tensor, Tag(format, owner=path, is_weight=True))
