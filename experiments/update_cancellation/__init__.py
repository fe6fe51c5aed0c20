"""Does nearest rounding of the weight update stop training, and do its remedies help?"""

#: The number of seeds that decide the claims.
SEEDS = 20
