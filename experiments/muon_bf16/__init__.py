"""Do the iterations by which Muon makes its updates orthogonal need more than BF16?"""

#: The number of seeds that decide the claims.
SEEDS = 10
