"""Under equal recipes, what does a training in FP4 owe to its format, to stochastic rounding, and to a rotation?"""
