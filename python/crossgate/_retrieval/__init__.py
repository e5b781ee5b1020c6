"""Stage 1: the index, embedders, and passages."""
