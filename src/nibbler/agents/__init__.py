"""What learns: configs, and each algorithm of the paper as readable NumPy."""
