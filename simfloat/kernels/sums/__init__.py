"""Sums: each order of additions as one step, and the loops that run such steps."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
