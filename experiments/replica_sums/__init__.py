"""What do the sums over replicas in BF16 lose as replicas become many, in a ring and in a tree?"""

#: The number of seeds that decide the claims.
SEEDS = 10
