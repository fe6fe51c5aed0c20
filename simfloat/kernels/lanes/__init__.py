"""Sums and operations in vector registers: several elements at a time, with the same bits as the scalar loops."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
