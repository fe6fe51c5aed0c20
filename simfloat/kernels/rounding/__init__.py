"""Rounding of one number and of arrays to a grid; events, codes and random words."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
