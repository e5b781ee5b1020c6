"""Stage 2: rerankers, the chain that picks one, and budget, latency and breaker around it."""
