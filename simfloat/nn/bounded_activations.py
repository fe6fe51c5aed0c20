"""Activations made of straight lines."""

from __future__ import annotations

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.formulas import bent_activations
from simfloat.nn.layer_arguments import apply_activation, as_number, check_not_in_place
from simfloat.nn.module import Module


class Hardtanh(Module):
    """x, no less than min_val and no more than max_val; its derivative is 1 between them, and 0 at both.

    Raises ValueError unless min_val is a number below max_val, and for `inplace`.

    Examples:
        >>> layer = sf.nn.Hardtanh()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-2.0, 0.5, 2.0])
        >>> y.data
        array([-1. ,  0.5,  1. ], dtype=float32)
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)
        self.min_val, self.max_val = as_number(min_val, "min_val"), as_number(max_val, "max_val")
        if self.min_val >= self.max_val:
            raise ValueError(f"min_val must be below max_val, got {min_val!r} and {max_val!r}.")

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).hardtanh(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """Its bounds."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


class ReLU6(Hardtanh):
    """x, no less than 0 and no more than 6. Raises ValueError for `inplace`.

    Examples:
        >>> layer = sf.nn.ReLU6()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 3.0, 8.0])
        >>> y.data
        array([0., 3., 6.], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Nothing: its bounds are in its name."""
        return ""


class Hardsigmoid(Module):
    """x + 3, no less than 0 and no more than 6, divided by 6. Raises ValueError for `inplace`.

    Examples:
        >>> layer = sf.nn.Hardsigmoid()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-4.0, 0.0, 1.0])
        >>> y.data
        array([0.        , 0.5       , 0.66796875], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return apply_activation("hardsigmoid", bent_activations.hardsigmoid, bent_activations.hardsigmoid_slope, x)


class Hardswish(Module):
    """x times x + 3, no less than 0 and no more than 6, divided by 6: Howard et al., arXiv 1905.02244.

    Raises ValueError for `inplace`.

    Examples:
        >>> layer = sf.nn.Hardswish()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-4.0, 1.0, 4.0])
        >>> y.data
        array([-0.        ,  0.66796875,  4.        ], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return apply_activation("hardswish", bent_activations.hardswish, bent_activations.hardswish_slope, x)


class Softshrink(Module):
    """x - lambd above lambd, x + lambd below -lambd, and 0 between. Raises ValueError for a negative lambd.

    Examples:
        >>> layer = sf.nn.Softshrink()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.25, 2.0])
        >>> y.data
        array([-0.5,  0. ,  1.5], dtype=float32)
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = as_number(lambd, "lambd", 0.0)

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return apply_activation(
            "softshrink", bent_activations.softshrink, bent_activations.shrink_slope, x, lambd=self.lambd
        )

    def extra_repr(self) -> str:
        """Its bound."""
        return f"lambd={self.lambd}"


class Hardshrink(Softshrink):
    """x, and 0 between -lambd and lambd. Raises ValueError for a negative lambd.

    Examples:
        >>> layer = sf.nn.Hardshrink()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.25, 2.0])
        >>> y.data
        array([-1.,  0.,  2.], dtype=float32)
    """

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return apply_activation(
            "hardshrink", bent_activations.hardshrink, bent_activations.shrink_slope, x, lambd=self.lambd
        )
