"""Arrays with a format: operators and NumPy functions round the result of each operation once."""

from simfloat.arrays.array import Array, array

__all__ = ["Array", "array"]
