"""Rates on this machine, each with its ratio to a ceiling or a peer measured in the same run."""
