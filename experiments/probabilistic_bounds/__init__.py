"""How large do errors of long sums become, and which bounds hold for them?"""

#: The number of seeds that decide the claims.
SEEDS = 20
