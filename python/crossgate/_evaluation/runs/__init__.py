"""Routing a dataset, and storing the results."""
