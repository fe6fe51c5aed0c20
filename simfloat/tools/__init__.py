"""Check an installation, and implement the command line."""
