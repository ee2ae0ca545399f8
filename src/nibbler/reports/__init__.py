"""Figures and the report page of a study."""
