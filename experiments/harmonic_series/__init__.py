"""Where do long sums stop growing, and which summation methods do not?"""

#: How many seeds decide the claims.
SEEDS = 20
