"""Does nearest rounding of the weight update stop training, and do its remedies help?"""

#: How many seeds decide the claims.
SEEDS = 20
