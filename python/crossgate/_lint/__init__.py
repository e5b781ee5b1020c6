"""The linter: finds problems in a library that hurt routing, with the library's own index."""
