"""Showing figures to people and programs."""
