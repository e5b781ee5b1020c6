"""The steps around the cascade, from retrieved lists to the final context."""
