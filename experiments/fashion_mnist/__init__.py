"""Do the claims on 16-bit and 8-bit training hold on 70 000 photographs of clothes?"""

#: The number of seeds that decide the claims.
SEEDS = 5
