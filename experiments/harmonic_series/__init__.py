"""Where do long sums stop growing, and which ways to add go on?"""

#: How many seeds decide the claims.
SEEDS = 20
