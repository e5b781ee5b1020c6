"""crossgate as the last step of a search in an existing engine, one module per engine.

Each module has a `search` that gets candidates from the engine by meaning and, if it can, by words,
and passes them to `crossgate.rerank`: the same cascade and the same result for every engine.
"""
