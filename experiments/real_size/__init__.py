"""Do the claims on 16-bit and 8-bit training hold for words, a book, speech and flights at the size of the data?"""

#: The number of seeds that decide the claims.
SEEDS = 5
