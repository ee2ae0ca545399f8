"""Environments built from the tables: catch, multi-catch, and adapters to other libraries' interfaces."""
