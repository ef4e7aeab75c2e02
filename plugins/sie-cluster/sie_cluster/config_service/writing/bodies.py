"""Reads the bodies of writes: bounded YAML or JSON, an id that can be one, fields of their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sie_cluster.config_service.refusals import refusal, validation_error
from sie_cluster.config_service.store.records import fits_json
from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.catalog.configs.reading import describe_problems
from sie_core.catalog.configs.schema import ModelFile
from sie_core.catalog.configs.snapshot import DEFAULT_PROFILE
from sie_core.catalog.configs.yaml_text import YamlFault, load_yaml
from sie_core.catalog.wording import short

ID_FIELDS = ("sie_id", "model_id")
LONGEST_KEY = 256
"""Characters of an idempotency key."""


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a write."""

    text: str
    """As it was sent."""
    content: Mapping[str, Any]
    """What it says, as JSON."""

    @property
    def model_id(self) -> object:
        """What it names as the model's id; None where it names none."""
        return next((self.content[field] for field in ID_FIELDS if field in self.content), None)


def read_body(body: bytes) -> Body:
    """Read the body of a write.

    Raises:
        InferenceError: `INVALID_INPUT` (`parse_error`): it is no map in YAML or JSON.
    """
    try:
        content = load_yaml(body)
    except YamlFault as fault:
        raise refusal("INVALID_INPUT", f"The body is {fault}.", error="parse_error") from None
    if not isinstance(content, dict):
        told = f"The body is {type(content).__name__}; a model config is a map of fields, in YAML or JSON."
        raise refusal("INVALID_INPUT", told, error="parse_error")
    if not fits_json(content):
        told = (
            "The body holds what JSON cannot: a date, a key that is no text, a number beyond 64 bits, or half a "
            "character of two."
        )
        raise refusal("INVALID_INPUT", told, error="parse_error")
    return Body(body.decode("utf-8"), content)


def check_id(model_id: object) -> str:
    """Return the id of a model that a write may name.

    Raises:
        InferenceError: `VALIDATION_ERROR`: there is none, or it is no text. `INVALID_INPUT` (`invalid_model_id`): it
            cannot be the id of a model.
    """
    if model_id is None:
        raise validation_error([("sie_id", "sie_id: the field is needed")])
    if not isinstance(model_id, str):
        raise validation_error([("sie_id", f"sie_id: {short(model_id)}: a text is needed")])
    if not is_model_id(model_id):
        why = f"an id is {ID_RULE}"
    elif model_id == "status" or model_id.endswith("/status"):
        why = "`status` at the end is a route of the gateway"
    elif model_id.endswith(f":{DEFAULT_PROFILE}"):
        why = f"`:{DEFAULT_PROFILE}` at the end names the default profile of another model"
    else:
        return model_id
    raise refusal("INVALID_INPUT", f"sie_id {short(model_id)}: {why}.", param="sie_id", error="invalid_model_id")


def check_fields(content: Mapping[str, Any], *, whole: bool) -> None:
    """Check the names and types of a config's fields, and that it has profiles.

    Args:
        content: What the body says.
        whole: Whether it is all of a config, whose fields must fit together.

    Raises:
        InferenceError: `VALIDATION_ERROR`, with each wrong field.
    """
    needed = "profiles: the field is needed; `profiles: {default: {}}` is the least"
    problems = [] if "profiles" in content else [("profiles", needed)]
    try:
        ModelFile.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False)
        for each, line in zip(found, describe_problems(error), strict=True):
            if whole or each["loc"] or each["type"] != "config":
                key = [each["ctx"]["key"]] if each["type"] == "unknown_key" else []
                problems.append((".".join(map(str, [*each["loc"], *key])), line))
    if problems:
        raise validation_error(problems)


def check_key(key: str | None) -> None:
    """Check an idempotency key.

    Raises:
        InferenceError: `INVALID_INPUT` (`invalid_idempotency_key`).
    """
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        told = f"Idempotency-Key {short(key)}: it has 1 to {LONGEST_KEY} printable ASCII characters."
        raise refusal("INVALID_INPUT", told, param="Idempotency-Key", error="invalid_idempotency_key")
