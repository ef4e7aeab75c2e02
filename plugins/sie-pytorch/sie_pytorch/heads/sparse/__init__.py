"""Heads that give sparse vectors: weights of a vocabulary's entries."""
