"""What does it cost, and what does it bring, to switch a layer between FP8 and FP16 while it trains?"""

#: The number of seeds that decide the claims.
SEEDS = 20
