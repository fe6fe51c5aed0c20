"""Which FP8 format serves forward and which backward, and what scales do they need?"""
