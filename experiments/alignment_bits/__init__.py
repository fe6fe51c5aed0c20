"""Hopper's FP8 units align their terms to 14 bits. How large must a model be before this hurts?"""

#: The number of seeds that decide the claims.
SEEDS = 10
