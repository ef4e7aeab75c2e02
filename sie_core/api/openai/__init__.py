"""The OpenAI-shaped embeddings route."""
