"""Serves checkpoints that only sentence-transformers understands."""
