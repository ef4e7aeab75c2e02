"""Cohere's embeddings."""
