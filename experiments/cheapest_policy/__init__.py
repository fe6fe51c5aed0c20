"""How much cheaper than the usual policies is the cheapest one that trains within one percent of FP32?"""

#: The number of seeds that decide the claims; the search uses none of them.
SEEDS = 20
