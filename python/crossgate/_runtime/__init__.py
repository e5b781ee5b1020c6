"""Model runtime: ONNX sessions, worker threads, and model files."""
