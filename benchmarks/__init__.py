"""Rates on this computer, each with its ratio to a ceiling or a peer that was measured in the same run."""
