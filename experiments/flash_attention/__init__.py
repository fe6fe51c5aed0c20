"""What does the rescaled accumulator of FlashAttention lose in BF16, and does rounding P V to BF16 bias it?"""

#: How many seeds decide the claims.
SEEDS = 20
