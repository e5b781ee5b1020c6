"""Helpers that every room uses: errors, checks, files, limits, optional packages, sanitising."""
