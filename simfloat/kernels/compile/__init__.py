"""Compiled kernels: what Numba makes of them, for which processor, and where the results are kept."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
