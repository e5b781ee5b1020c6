"""The HTTP server: crossgate behind the endpoints of other rerankers."""
