"""Sums and operations in vector registers: the bits of the scalar loops, several at a time."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
