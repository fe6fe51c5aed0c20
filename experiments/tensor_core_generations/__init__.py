"""Do NVIDIA's tensor cores agree from generation to generation, and what does promotion to FP32 gain?"""

#: The number of seeds that decide the claims.
SEEDS = 20
