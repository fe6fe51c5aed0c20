"""How far apart are the logits of the same weights under other kernels, and does a format bring them together?"""

#: The number of seeds that decide the claims.
SEEDS = 10
