"""Shared helpers: errors, argument checks, files, limits, optional packages, sanitising."""
