"""What an agent did with the suggestions, what a person teaches, and the lists of skills."""
