"""Tools around the library: the check of an installation, and the command line."""
