"""The `nibbler` command."""
