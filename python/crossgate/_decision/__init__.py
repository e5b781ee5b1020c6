"""The cascade, and the calls that start it: route, rerank, batches, replay."""
