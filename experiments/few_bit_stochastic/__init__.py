"""How many random bits does stochastic rounding need?"""
