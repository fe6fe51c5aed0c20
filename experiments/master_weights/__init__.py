"""Does FP16 training need a master copy of the weights in FP32, and why?"""
