"""Rounding one number to a grid, and arrays of numbers; events, codes and random words."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
