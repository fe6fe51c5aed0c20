"""How does a dynamic loss scale move, and which statements about it hold?"""
