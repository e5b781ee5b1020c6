"""Stage 2: rerankers, and what decides which of them is asked and for how long."""
