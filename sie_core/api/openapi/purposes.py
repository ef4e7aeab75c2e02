"""What routes are for: the tags of the OpenAPI document, in the order in which `/docs` lists them."""

from __future__ import annotations

from typing import Any, Final

PURPOSES: Final = {
    "encode": ("Encode", "Vectors of texts, pictures and audio: dense, sparse, or one a token."),
    "score": ("Score", "How well documents fit a query."),
    "extract": ("Extract", "Entities, relations, classes and objects."),
    "openai": ("OpenAI and Jina", "For clients of OpenAI's embeddings, and of Jina's embeddings and reranking."),
    "cohere": ("Cohere", "For clients of Cohere's embeddings and reranking, of its first and second API."),
    "tei": (
        "Text Embeddings Inference",
        "For clients of Hugging Face's TEI: `/tei/{model}` takes the place of a server that has one model.",
    ),
    "vllm": ("vLLM", "For clients of vLLM's scores and classes."),
    "nvidia": ("NVIDIA", "For clients of NVIDIA's rerankers."),
    "ollama": ("Ollama", "For clients of Ollama's embeddings."),
    "models": ("Models", "What is served, in which state, and by which plugin."),
    "status": ("Status", "Whether the server is well, and what it measures."),
}
"""A title and a sentence about each tag."""


def tags() -> list[dict[str, Any]]:
    """Describe the tags as OpenAPI has them; `x-displayName` is a title that other viewers read too."""
    return [{"name": name, "description": about, "x-displayName": title} for name, (title, about) in PURPOSES.items()]
