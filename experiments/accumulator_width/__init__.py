"""How wide must the accumulator of a dot product be, and do sums in chunks get by with less?"""
