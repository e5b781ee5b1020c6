"""Figures computed from stored runs."""
