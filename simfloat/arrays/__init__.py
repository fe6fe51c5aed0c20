"""Arrays that know their format: operators and NumPy's functions, each operation rounded once."""

from simfloat.arrays.array import Array, array

__all__ = ["Array", "array"]
