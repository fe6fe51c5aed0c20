"""Elementwise operations: exact results, and loops that round them."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
