"""Where do long sums stop growing, and which summation methods do not?"""

#: The number of seeds that decide the claims.
SEEDS = 20
