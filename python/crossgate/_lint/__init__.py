"""What hurts routing in a library, found with the index itself."""
