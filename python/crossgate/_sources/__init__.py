"""Readers of documents, transcripts and projects; `reading` reads any source."""
