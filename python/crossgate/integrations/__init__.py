"""crossgate inside retrieval frameworks; one module per framework.

Each module imports its framework, which must be installed.
"""
