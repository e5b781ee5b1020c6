"""crossgate as the last step of a search in an existing engine, one module per engine.

Each module has a `search` that asks the engine for candidates by meaning and, where it can, by
words, and hands all of them to `crossgate.rerank`: same cascade, same result, whatever the engine.
"""
