"""Questions and their answers: one folder per question, run by ``python -m experiments``."""
