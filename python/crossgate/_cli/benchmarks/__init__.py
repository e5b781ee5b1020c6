"""Benchmarks of crossgate's processes, kernels, models and index files."""
