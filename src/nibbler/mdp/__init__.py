"""Finite MDPs given by tables: their algebra, their simulation, and exact answers about them."""
