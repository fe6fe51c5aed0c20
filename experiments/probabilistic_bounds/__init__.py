"""How large do errors of long sums become, and which bounds hold for them?"""

#: How many seeds decide the claims.
SEEDS = 20
