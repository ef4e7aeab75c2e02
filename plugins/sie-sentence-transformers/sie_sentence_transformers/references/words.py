"""Translates a task's prompts and length to the terms of sentence-transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sie_core.contracts import LoadContext, ModelInfo, NoReferenceError, Task

_MARK = "\x00"


@dataclass(frozen=True, slots=True)
class Words:
    """The arguments of one call of the library."""

    prompt: str | None
    """None leaves the choice to the library: its own files decide, for a query, a document, or neither."""
    suffix: str = ""
    max_length: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of `encode`."""
        lengths = {} if self.max_length is None else {"processing_kwargs": {"text": {"max_length": self.max_length}}}
        return {"prompt": self.prompt, **lengths}


def words_of(task: Task) -> Words:
    """Read the templates, the instruction and the lengths of a task of `encode`."""
    query, options = task.input_type == "query", task.options
    length = (options.get("query_max_length") if query else None) or options.get("max_seq_length")
    template = options.get("query_template" if query else "doc_template")
    instruction = task.instruction
    if instruction is None and (query or template):
        instruction = options.get("default_instruction")
    if template is not None:
        before, _, after = template.format(text=_MARK, instruction=instruction or "").partition(_MARK)
        return Words(before, after, length)
    if instruction is not None:
        return Words(f"{instruction} " if instruction else "", max_length=length)
    return Words(None, max_length=length)


def limit_length(library: Any, context: LoadContext, served: ModelInfo) -> None:
    """Give the library the model's length if its files do not state it.

    That is a length in the model's config, or one that was assumed because none is stated. For RoBERTa's kind, if only
    `max_position_embeddings` states a length, it is two less: two positions belong to no token of a text.
    """
    assert context.card is not None
    length, own = served.max_sequence_length, library.max_seq_length
    told = context.model.config.max_sequence_length or "max_sequence_length" in served.notes
    beyond = own is not None and own == context.card.config.get("max_position_embeddings")
    if length is not None and (told or (beyond and length < own <= length + 2)):
        library.max_seq_length = length


def refuse_options(task: Task, known: frozenset[str]) -> None:
    """Refuse a task with options that the library does not do.

    Raises:
        NoReferenceError: It has one.
    """
    if unknown := sorted(name for name, value in task.options.items() if value is not None and name not in known):
        raise NoReferenceError(f"does not know the profile's {', '.join(unknown)}")


def refuse_other_class(served: ModelInfo) -> None:
    """Refuse a model that is served by another class than the one its weights name: the library would load that too.

    Raises:
        NoReferenceError: Its config has the weights' own code ignored.
    """
    if "auto_map" in served.notes:
        raise NoReferenceError("does not run the class the weights name, as the profile says `auto_map: ignore`")


def refuse_fallback(served: ModelInfo) -> None:
    """Refuse to check the library against itself.

    Raises:
        NoReferenceError: The model is served by the fallback adapter, which is the library.
    """
    if served.notes.get("runner", "").endswith("(fallback)"):
        raise NoReferenceError("serves the model itself, through the fallback adapter: there is nothing to compare")
