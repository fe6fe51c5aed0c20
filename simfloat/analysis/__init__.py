"""Analyze models, policies and sums: attribution, cost, diagnosis, and the order of additions in a black box."""
