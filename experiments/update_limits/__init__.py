"""How far from the optimum do nearest updates stop: by step size, precision, weights, and in fixed point?"""

#: How many seeds decide the claims.
SEEDS = 20
