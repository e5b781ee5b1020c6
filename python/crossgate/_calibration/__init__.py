"""Fitting a profile to labelled queries."""
