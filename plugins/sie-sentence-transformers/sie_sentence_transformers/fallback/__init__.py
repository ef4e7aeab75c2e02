"""Checkpoints that sentence-transformers alone understands, served by it."""
