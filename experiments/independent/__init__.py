"""Findings of the experiments, made again without simfloat: plain NumPy or PyTorch, written anew, on other seeds.

`python -m experiments.independent` makes all of them in about a minute, and compares their verdicts with those of the
experiments' READMEs. What they share with the experiments is the claim and the rule of its verdict, and no code.
"""
