"""Which part of rotary position embeddings needs FP32: positions, frequencies, angles, tables, or the rotation?"""

#: The number of seeds that decide the claims.
SEEDS = 20
