"""Findings of the experiments, repeated without simfloat: plain NumPy or PyTorch, new code, other seeds.

`python -m experiments.independent` repeats all of them in about ten minutes, and compares their verdicts with those
of the experiments' READMEs. They share the claim and the rule of its verdict with the experiments, and no code.
"""
