"""The version of the package, for its files too."""

__version__ = "0.1.0"
