"""Benchmarks: each module has a `run` that measures, prints a table and returns its rows."""
