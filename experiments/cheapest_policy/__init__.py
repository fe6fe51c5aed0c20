"""How much cheaper than the usual policies is the cheapest one that trains within one percent of FP32?"""

#: How many seeds decide the claims, none of them used by the search.
SEEDS = 20
