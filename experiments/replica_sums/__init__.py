"""How much do BF16 sums over replicas lose as the number of replicas grows, in a ring and in a tree?"""

#: The number of seeds that decide the claims.
SEEDS = 10
