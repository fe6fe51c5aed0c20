"""Rules of PyTorch's operations, in tables by name."""
