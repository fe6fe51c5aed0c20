"""Analyses of models and policies: attribution, cost, diagnosis, and the order of additions in a black box."""
