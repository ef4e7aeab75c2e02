"""The bodies of the routes that vLLM has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from sie_core.api.fields.lengths import PromptLength
from sie_core.api.http.limits import MAX_DOCUMENTS, MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.rerank.schema import INSTRUCTION
from sie_core.api.schema import Schema


def _texts(most: int) -> WithJsonSchema:
    listed = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": most}
    return WithJsonSchema({"anyOf": [{"type": "string"}, listed]})


ScoredTexts = Annotated[Any, _texts(MAX_DOCUMENTS)]
ClassifiedTexts = Annotated[Any, _texts(MAX_EMBEDDING_INPUTS)]


def _off(value: Any) -> Any:
    if value is not None:
        raise ValueError("cannot be done here; leave it out")
    return value


_Off = Annotated[None, BeforeValidator(_off)]


class VllmFields(PromptLength):
    """What the requests of both routes have."""

    model: ModelId | None = Field(default=None, description="Absent: `SIE_DEFAULT_MODEL`.")
    use_activation: bool | None = Field(
        default=None, description="Whether logits are made scores; absent: yes. False gives them as they are."
    )
    activation: bool | None = Field(default=None, description="The older name of `use_activation`.")

    @property
    def wants_logits(self) -> bool:
        """Whether logits are asked for."""
        return False in (self.use_activation, self.activation)


class VllmScoreBody(VllmFields):
    """Texts to compare: `text_1` and `text_2`, or `queries` and `documents`. A field that is null counts as absent."""

    text_1: ScoredTexts = Field(
        default=None, description="A text, compared with each of `text_2`; or as many texts, each with its own."
    )
    text_2: ScoredTexts = None
    queries: ScoredTexts = Field(default=None, description="Another name of `text_1`.")
    documents: ScoredTexts = Field(default=None, description="Another name of `text_2`.")
    instruction: str | None = INSTRUCTION
    max_tokens_per_query: _Off = Field(default=None, description="Refused.")
    max_tokens_per_doc: _Off = Field(default=None, description="Refused.")


class VllmUsage(Schema):
    """Tokens of every text or pair, counted by the model's own tokenizer after truncation."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: Literal[0]
    prompt_tokens_details: None


class VllmScore(Schema):
    """The score of a pair of texts."""

    index: int
    object: Literal["score"]
    score: float


class VllmScoreReply(Schema):
    """The scores in the order of the pairs."""

    id: str
    object: Literal["list"]
    created: int = Field(description="Unix seconds.")
    model: str
    data: list[VllmScore]
    usage: VllmUsage


class VllmClassifyBody(VllmFields):
    """Texts to classify. A field that is null counts as absent."""

    input: ClassifiedTexts


class VllmClassification(Schema):
    """What a model makes of a text."""

    index: int
    label: str = Field(description="The class with the highest of `probs`.")
    probs: list[float] = Field(description="The scores of the classes, in the order of the model's logits.")
    num_classes: int


class VllmClassifyReply(Schema):
    """The classes of each text, in the order of the texts."""

    id: str
    object: Literal["list"]
    created: int = Field(description="Unix seconds.")
    model: str
    data: list[VllmClassification]
    usage: VllmUsage
