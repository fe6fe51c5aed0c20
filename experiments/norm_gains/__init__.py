"""Do gains of layer norms saturate in MXFP8 blocks, and does the rule for scales decide if a model trains?"""

#: The number of seeds that decide the claims.
SEEDS = 6
