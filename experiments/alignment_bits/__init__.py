"""How large must a model be before the 14 bits to which Hopper's FP8 units align their terms hurt?"""

#: The number of seeds that decide the claims.
SEEDS = 10
