"""Compilation of kernels: the compile flags, the target processor, and the files of compiled code."""

from simfloat.kernels import import_lazily

__getattr__ = import_lazily(__name__)
