"""Where must a regulariser be computed, so that FP16 does not lose it?"""
