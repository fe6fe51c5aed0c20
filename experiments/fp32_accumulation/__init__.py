"""From which length on must sums of FP16 products be accumulated in FP32?"""

#: The number of seeds that decide the claims.
SEEDS = 10
