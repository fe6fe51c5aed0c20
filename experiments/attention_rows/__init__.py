"""Do the attention rows of a trained GPT reach the bias of FlashAttention in BF16?"""

#: The number of seeds that decide the claims.
SEEDS = 8
