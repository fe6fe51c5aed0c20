"""What does it cost, and what does it bring, to switch a layer between FP8 and FP16 while it trains?"""

#: How many seeds decide the claims.
SEEDS = 20
