"""Prompt hooks of agents: one prompt in, at most a few lines of context out, never an error."""
