"""Where agents meet environments: the same algorithms at several speeds, and the one way to run them."""
