"""The files of the embedder for twenty languages; crossgate reads them."""
