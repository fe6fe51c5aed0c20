"""How far from the optimum do nearest updates stop: by step size, precision, weights, and in fixed point?"""

#: The number of seeds that decide the claims.
SEEDS = 20
