"""The fields of other APIs that no route serves: those that change no answer, and those that are refused.

One table for all dialects: a field means the same wherever services have it. A field of a route's own schema is served
there, whatever stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Unserved:
    """A field that is not served."""

    name: str
    of: str
    """The services that have it."""
    why: str
    """Why it may be ignored, or what to do in place of it."""
    refused: bool = True
    """Whether it is refused; otherwise it changes no answer, and is ignored."""
    harmless: tuple[Any, ...] = ()
    """Values of a refused field that ask for what is done anyway."""


_RANK_DOCUMENTS: Final = "all `texts` are returned, best first; keep the first ones, or send `documents`"
_LENGTH: Final = "texts beyond the model's length are cut at their end"
_CUT: Final = "`truncate` says what becomes of a text beyond the model's length"
_TASK: Final = "`task` and `input_type` name a prompt"

UNSERVED: Final = {
    row.name: row
    for row in (
        Unserved("user", "OpenAI", "it names a user to the service's own books", refused=False),
        Unserved("metadata", "LiteLLM, OpenAI", "it labels the request in the client's own logs", refused=False),
        Unserved("client_name", "Cohere", "it names the client to the service's own books", refused=False),
        Unserved("request_id", "vLLM", "the id of a request is its header `X-Request-Id`", refused=False),
        Unserved("priority", "Cohere, vLLM", "it orders work; here `X-SIE-Priority` does", refused=False),
        Unserved("cache_salt", "vLLM", "there is no cache of prompts", refused=False),
        Unserved("keep_alive", "Ollama", "a model stays loaded until its memory is needed", refused=False),
        Unserved("add_special_tokens", "vLLM", "texts get the special tokens of the model", harmless=(True,)),
        Unserved("activation", "vLLM", "rerank routes have `raw_scores`", harmless=(True,)),
        Unserved("use_activation", "vLLM", "rerank routes have `raw_scores`", harmless=(True,)),
        Unserved("chat_template", "vLLM", "texts are read as they are"),
        Unserved("chat_template_kwargs", "vLLM", "texts are read as they are"),
        Unserved("messages", "vLLM", "texts are read as they are; send `input`"),
        Unserved("mm_processor_kwargs", "vLLM", "pictures are read as the model's own files say"),
        Unserved("embed_dtype", "vLLM", "send `embedding_type`", harmless=("float32",)),
        Unserved("endianness", "vLLM", "base64 holds little-endian numbers", harmless=("native", "little")),
        Unserved("pooling", "vLLM", "a profile of the model's config chooses the pooling"),
        Unserved("normalize", "TEI, vLLM", "`/v1/embeddings` has `normalized` and `/embed` has `normalize`"),
        Unserved(
            "modality",
            "infinity, NVIDIA",
            "each input says itself whether it is a text or a picture",
            harmless=("text", "image", ["text"]),
        ),
        Unserved("prompt_name", "TEI", _TASK),
        Unserved("task_type", "Google, Nomic", _TASK),
        Unserved("dimensionality", "Nomic", "send `dimensions`"),
        Unserved("output_dimensionality", "Google", "send `dimensions`"),
        Unserved("output_dimension", "Mistral, Voyage", "send `dimensions`"),
        Unserved("output_dtype", "Mistral, Voyage", "send `embedding_types`", harmless=("float",)),
        Unserved("truncation", "Voyage", _CUT, harmless=(True,)),
        Unserved("truncate_prompt_tokens", "vLLM", _CUT, harmless=(-1,)),
        Unserved("truncation_side", "vLLM", _CUT, harmless=("right",)),
        Unserved("max_tokens", "Cohere", _CUT),
        Unserved(
            "max_chunks_per_doc",
            "Cohere",
            "documents are cut, not ranked in chunks; send `max_tokens_per_doc`",
            harmless=(1, 10),
        ),
        Unserved("rank_fields", "Cohere", "documents are read by `text`; write all of it there", harmless=(["text"],)),
        Unserved("return_embeddings", "Jina", "send the documents to `/v1/embeddings`", harmless=(False,)),
        Unserved("stream", "OpenAI", "answers come as a whole", harmless=(False,)),
        Unserved("top_k", "Voyage", _RANK_DOCUMENTS),
        Unserved("top_n", "Cohere, Jina", _RANK_DOCUMENTS),
        Unserved("input_type", "Cohere, NVIDIA", "a query and its documents are told apart by their fields"),
        Unserved("task", "Jina", "a query and its documents are told apart by their fields"),
        Unserved("encoding_format", "OpenAI", "vectors are lists of numbers", harmless=("float",)),
        Unserved("embedding_type", "Jina", "`/v1/embeddings` has it", harmless=("float",)),
        Unserved("embedding_types", "Cohere", "`/v2/embed` has it; `/v1/embeddings` has `embedding_type`"),
        Unserved("dimensions", "OpenAI", "answers of this route have no dimensions to choose"),
        Unserved("normalized", "Jina", "`/v1/embeddings` has it", harmless=(True,)),
        Unserved("late_chunking", "Jina", "texts are embedded one by one", harmless=(False,)),
        Unserved("return_multivector", "Jina", "`/embed_all` gives a vector a token", harmless=(False,)),
        Unserved("truncate", "NVIDIA, TEI", _LENGTH, harmless=(True, "END", "end")),
        Unserved("truncation_direction", "TEI", _LENGTH, harmless=("right", "Right")),
        Unserved("max_tokens_per_query", "Cohere", "rerank routes have it"),
        Unserved("max_tokens_per_doc", "Cohere", "rerank routes have it"),
        Unserved("raw_scores", "infinity, TEI", "scores are not made of logits here", harmless=(False,)),
        Unserved("return_text", "TEI", "send `return_documents`", harmless=(False,)),
        Unserved("instruction", "Qwen", "rerank routes and `/v1/encode` have it"),
        Unserved("parameters", "Hugging Face", "`/predict` and `/similarity` have it", harmless=({},)),
        Unserved("skip_special_tokens", "TEI", "`/decode` has it"),
        Unserved("return_documents", "Cohere, Jina", "send `return_text`", harmless=(False,)),
    )
}
"""Every one of them, by its name."""
