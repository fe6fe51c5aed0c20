"""What a GPU does itself, as `kernels/target.py` says it of a processor: all generations that code is made for do."""

CONVERTS_FP16 = True
COMPUTES_FP16 = True
COMPUTES_BF16 = True
COMPUTES_DIRECTED = True
