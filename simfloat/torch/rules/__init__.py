"""How the operations of PyTorch are carried out: tables by name, and the search through them."""
