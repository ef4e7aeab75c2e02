"""Heads for sparse vectors: weights of vocabulary entries."""
