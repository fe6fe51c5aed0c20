"""Do the iterations by which Muon makes its updates orthogonal need more than BF16?"""

#: How many seeds decide the claims.
SEEDS = 10
