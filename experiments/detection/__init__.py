"""Does an object detector in FP16 need a loss scale, and which gradients does it save?"""
