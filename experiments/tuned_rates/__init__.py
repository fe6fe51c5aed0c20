"""Is 16-bit training with nearest updates worse if each policy has its own best learning rate?"""

#: The number of seeds that decide the claims.
SEEDS = 10
