"""The routes of text-embeddings-inference."""
