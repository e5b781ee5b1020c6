"""crossgate inside the frameworks that people build retrieval with; one module per framework.

Each imports its framework, so that a module is there where its framework is.
"""
