"""The rerank routes in the shapes of Jina and Cohere."""
