"""Routing a dataset, and storing what came of it."""
