"""What is told to the outside of each decision: events, the log, spans."""
