"""What does the rescaled accumulator of FlashAttention lose in BF16, and does rounding P V to BF16 bias it?"""

#: The number of seeds that decide the claims.
SEEDS = 20
