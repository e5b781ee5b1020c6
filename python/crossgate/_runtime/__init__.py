"""Running models: ONNX sessions, worker threads, and the files of models."""
