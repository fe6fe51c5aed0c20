"""Questions and their answers: one folder for each, run by ``python -m experiments``."""
