"""Which rule for the scales of blocks loses least, and do FP8 and FP4 operands train as well as BF16 operands?"""
