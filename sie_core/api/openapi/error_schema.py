"""The bodies of errors, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema
from sie_sdk.errors import ERRORS

from sie_core.api.schema import Schema

Code = Annotated[str, WithJsonSchema({"type": "string", "enum": list(ERRORS)})]


class ErrorFields(Schema):
    """What went wrong, and what to do about it."""

    model_config = ConfigDict(extra="allow")

    code: Code
    message: str
    param: str | None = Field(default=None, description="The field at fault, e.g. `items[3].text`.")
    request_id: str | None = Field(default=None, description="The `X-SIE-Request-ID` of the reply.")
    trace_id: str | None = Field(default=None, description="The `X-Trace-ID` of the reply, where it has one.")


class ErrorReply(Schema):
    """Every failure of a native route."""

    error: ErrorFields


class OpenAIErrorFields(Schema):
    """What went wrong, as OpenAI's clients read it."""

    model_config = ConfigDict(extra="allow")

    message: str
    type: str = Field(examples=["invalid_request_error"])
    param: str | None
    code: str = Field(examples=["invalid_request", "model_not_found", "MODEL_LOADING"])


class OpenAIErrorReply(Schema):
    """Every failure of an OpenAI-shaped route."""

    error: OpenAIErrorFields


class CohereErrorReply(Schema):
    """Every failure of a Cohere-shaped route."""

    model_config = ConfigDict(extra="allow")

    message: str
    code: Code
    param: str | None = None


class OllamaErrorReply(Schema):
    """Every failure of an Ollama-shaped route."""

    model_config = ConfigDict(extra="allow")

    error: str
    code: Code
    param: str | None = None


class TeiErrorReply(Schema):
    """Every failure of a TEI-shaped route."""

    model_config = ConfigDict(extra="allow")

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]
    code: Code
    param: str | None = None
