"""The questions for a model: texts of several lengths and scripts, as each kind of input it has, and pictures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from sie_core.contracts import (
    Compared,
    InferenceRequest,
    InputType,
    Item,
    Media,
    ModelInfo,
    Operation,
    OutputType,
    Task,
)
from sie_core.verification.pictures import MODES, WEBP, png

QUERY = "What does search need, and where was Ada Lovelace born?"
LABELS = ("person", "place", "date", "software")
TEXTS = (
    "a",
    "Search needs small models.",
    "Ada Lovelace was born in London in 1815, and wrote to Charles Babbage on machines.",
    "Der schnelle braune Fuchs springt über den faulen Hund, zweimal: naïve café.",
    "検索には小さなモデルが必要です。",
)
SPELLED = (
    "[MASK]<mask> small models [UNK] of <unk> search [SEP] need [PAD] no <pad> more </s> than <|endoftext|> words",
    "[PAD]<pad> what ends in padding [MASK]<mask>[PAD]<pad>",
    "what ends in the end of a text [SEP]</s><|endoftext|>",
)
"""Special tokens as tokenizers spell them, at the start, inside and at the end: a model's class may look for padding,
mask and end tokens even in users' texts.

Families that extract may read them as words.
"""
WORDS = ("the", "engine", "ranks", "every", "document", "by", "what", "it", "says;", "Grace", "Hopper", "saw", "Boston")
LONGEST = 600
"""Words of the longest text: with more, a large model would take minutes on a CPU."""
UNKNOWN_LENGTH = 460
"""Words of a text that is several windows long for any model that reads windows."""
SURPLUS = 20
"""Words by which a long text exceeds what the model reads."""
PICTURES = ((40, 24), (64, 64), (33, 90), (240, 300))
"""Widths and heights of the pictures a model that sees is shown; one of the second size in every mode."""


@dataclass(frozen=True, slots=True)
class Question:
    """One task, with its items."""

    operation: Operation
    items: tuple[Item, ...]
    kinds: tuple[Compared, ...]
    """The compared outputs; for `extract`, the possible ones."""
    input_type: InputType | None = None
    query: Item | None = None
    labels: tuple[str, ...] = ()
    by: OutputType | None = None
    """The vectors that scores are computed from, if the model has no scores of its own."""

    @property
    def said(self) -> str:
        """The way in which the items are asked, in words for operators."""
        if self.operation == "score":
            return f"query and document, by {self.by}" if self.by else "query and document"
        return f"as {self.input_type}" if self.input_type else "image" if self.items[0].images else "text"

    def request(self, model: str, number: str, items: Sequence[Item]) -> InferenceRequest:
        """Make the client's request for some of the items, with the profile's options only."""
        return InferenceRequest(
            model,
            self.operation,
            items,
            request_id=f"verify-{number}",
            output_types=self._outputs or None,
            output_dtype="float32",
            input_type=self.input_type,
            labels=self.labels,
            query=self.query,
        )

    def task(self, options: Mapping[str, Any], **engine: Any) -> Task:
        """Make the task for a reference; `engine` has the profile's options for every family."""
        task = Task(self.operation, self._outputs, query=self.query, labels=self.labels, options=options)
        task = replace(task, **{name: value for name, value in engine.items() if value is not None})
        return replace(task, input_type=self.input_type) if self.input_type else task

    @property
    def _outputs(self) -> tuple[OutputType, ...]:
        return tuple(name for name in get_args(OutputType) if name in self.kinds) if self.operation == "encode" else ()


def questions(info: ModelInfo, made: Collection[OutputType], by: OutputType | None) -> list[Question]:
    """List what to ask of a model.

    Args:
        info: The model's description.
        made: Derived outputs, which are none of the model's own.
        by: The vectors that its scores are computed from; None if it has scores of its own, or gives no vectors.
    """
    plain = texts(info.max_sequence_length)
    items = _numbered([*SPELLED, *plain])
    found: list[Question] = []
    vectors = tuple(name for name in get_args(OutputType) if name in info.outputs and name not in made)
    if vectors and "image" in info.inputs:
        found.append(Question("encode", _pictures(), vectors))
    if vectors and "text" in info.inputs:
        found += [Question("encode", items, vectors, input_type) for input_type in (None, "query", "document")]
    if "score" in info.outputs or by is not None:
        found.append(Question("score", items, ("score",), query=Item(text=QUERY), by=by))
    if "extract" in info.operations:
        extracted: tuple[Compared, ...] = ("entities", "relations", "classifications", "objects", "data")
        found.append(Question("extract", _numbered(plain), extracted, labels=LABELS))
    return found


def _numbered(texts: Sequence[str]) -> tuple[Item, ...]:
    return tuple(Item(id=f"text-{number}", text=text) for number, text in enumerate(texts))


def _pictures() -> tuple[Item, ...]:
    drawn = [png(*size) for size in PICTURES] + [png(*PICTURES[1], mode) for mode in MODES if mode != "RGB"]
    media = [*(Media(data, "png") for data in drawn), Media(WEBP, "webp")]
    return tuple(Item(id=f"image-{place}", images=(each,)) for place, each in enumerate(media))


def texts(limit: int | None) -> list[str]:
    """Write texts from one letter to one beyond a limit of `limit` tokens, as far as that is affordable."""
    words = min(limit or UNKNOWN_LENGTH, LONGEST) + SURPLUS
    long = " ".join(WORDS[place * 5 % len(WORDS)] for place in range(words))
    return [*TEXTS, " ".join(WORDS * 3), long]
