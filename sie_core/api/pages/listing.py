"""Lists the routes of an OpenAPI document by purpose, each with examples that name models of this server."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args
from urllib.parse import quote

from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.openapi.examples import NEEDS, Needs
from sie_core.contracts import ModelInfo

IN_PATH: Final = "{model}"
MOST_MODELS: Final = 50
"""Models that are offered for an example."""

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """A request that can be sent as it stands."""

    title: str
    method: str
    path: str
    """Has `{model}` where it names the model."""
    body: Mapping[str, Any] | None
    model: str
    """Empty where the request needs none, or none that is served can answer."""
    is_here: bool
    """Whether the model's weights are here."""
    offered: tuple[str, ...]
    """Models that are here and can answer."""

    @property
    def url(self) -> str:
        """The path with the model."""
        return self.path.replace(IN_PATH, quote(self.model, safe="/:"))

    @property
    def text(self) -> str:
        """The body as JSON, over several lines."""
        return json.dumps(self.body, indent=2, ensure_ascii=False)

    @property
    def quoted(self) -> str:
        """The body as JSON in one line, quoted for a shell."""
        return shlex.quote(json.dumps(self.body, ensure_ascii=False))


@dataclass(slots=True)
class Listed:
    """An operation, under every path that it has."""

    method: str
    about: str
    operation: Document
    paths: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Its place in a page."""
        return f"{self.method}{self.paths[0]}".replace("/", "-").translate({ord("{"): None, ord("}"): None})

    @property
    def headline(self) -> str:
        """What it does, in one sentence."""
        return f"{' '.join(self.about.split()).partition('. ')[0].removesuffix('.')}."

    @property
    def schema(self) -> str:
        """The name of the body's schema; empty where there is no body."""
        return _schema(self.operation.get("requestBody", {}))

    @property
    def replies(self) -> list[tuple[str, str, str]]:
        """Status, name of the schema, and description of each reply."""
        responses = self.operation["responses"].items()
        return [(status, _schema(response), response["description"]) for status, response in responses]


@dataclass(slots=True)
class Purpose:
    """Routes of one tag."""

    name: str
    title: str
    about: str
    routes: list[Listed] = field(default_factory=list)


def purposes(document: Document, models: Sequence[ModelInfo]) -> list[Purpose]:
    """List what a server answers; a tag that the document does not describe comes last, under its own name."""
    tags = {tag["name"]: Purpose(tag["name"], tag["x-displayName"], tag["description"]) for tag in document["tags"]}
    known: dict[tuple[str, ...], Listed] = {}
    for path, method, operation in operations(document):
        tag, listed = operation["tags"][0], Listed(method, operation["description"], operation)
        key = tag, method, listed.about, listed.schema
        if key not in known:
            known[key] = listed
            tags.setdefault(tag, Purpose(tag, tag, "")).routes.append(listed)
        known[key].paths.append(path)
    able = {needs: _able(models, needs) for needs in (None, *get_args(Needs))}
    for route in known.values():
        route.trials = list(_trials(route, able))
    return [purpose for purpose in tags.values() if purpose.routes]


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Go through path, method and description of every route."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def headers_of(document: Document) -> list[tuple[str, dict[str, str]]]:
    """List the headers of requests for inference, and those of its replies, each with what it says."""
    taken: dict[str, str] = {}
    given: dict[str, str] = {}
    for _, _, operation in operations(document):
        for each in operation.get("parameters", ()):
            if each["in"] == "header":
                taken[each["name"]] = each["description"]
        for name, each in operation["responses"].get("200", {}).get("headers", {}).items():
            given[name] = each["description"]
    return [("Of requests for inference", taken), ("Of its replies", given)]


def examples(operation: Document) -> Mapping[str, Any]:
    """Return the examples of a route's body."""
    content = operation.get("requestBody", {}).get("content", {})
    found: Mapping[str, Any] = content.get(JSON_TYPE, {}).get("examples", {})
    return found


def _able(models: Sequence[ModelInfo], needs: Needs | None) -> list[ModelInfo]:
    """List the models that can do something, or all; those that are here come first, and of them the loaded ones."""
    able = [model for model in models if needs is None or needs in _abilities(model)]
    return sorted(able, key=lambda model: (not model.available, model.state != "loaded"))


def _abilities(model: ModelInfo) -> tuple[str, ...]:
    return (*model.outputs, *model.operations, *(("classes",) if model.classes else ()))


def _trials(route: Listed, able: Mapping[Any, Sequence[ModelInfo]]) -> Iterator[Trial]:
    if route.method == "get":
        yield _trial(route, "", None, able[None])
    for example in examples(route.operation).values():
        yield _trial(route, example["summary"], example["value"], able[example[NEEDS]])


def _trial(route: Listed, title: str, body: Mapping[str, Any] | None, able: Sequence[ModelInfo]) -> Trial:
    in_body = body is not None and "model" in body
    path = next((path for path in route.paths if IN_PATH in path and not in_body), route.paths[0])
    if not in_body and IN_PATH not in path:
        return Trial(title, route.method, path, body, "", True, ())
    model = able[0].id if able else ""
    offered = tuple(each.id for each in able[:MOST_MODELS] if each.available)
    if in_body:
        body = {**(body or {}), "model": model}
    return Trial(title, route.method, path, body, model, bool(offered), offered)


def _schema(holder: Document) -> str:
    """Name the schema of a request's or a reply's body."""
    media: Document = next(iter(holder.get("content", {}).values()), {})
    name: str = media.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return name
