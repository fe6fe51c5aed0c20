"""Do the claims on 16-bit and 8-bit training hold for whole data sets of words, a book, speech and flights?"""

#: The number of seeds that decide the claims.
SEEDS = 5
