"""What a GPU does itself, as `kernels/target.py` says it of a processor: every generation since Pascal has both."""

CONVERTS_FP16 = True
COMPUTES_FP16 = True
