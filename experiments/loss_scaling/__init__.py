"""Which gradients does FP16 lose, and does a constant loss scale bring them back?"""
