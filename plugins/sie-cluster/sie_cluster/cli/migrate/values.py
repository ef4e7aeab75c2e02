"""Reads a values file of another chart for `sie-cluster` as the schema of this chart's values has it.

Every leaf of the file comes out as one `Told`: taken, renamed, or unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sie_core.catalog.wording import did_you_mean

Schema = Mapping[str, Any]
FREE: Schema = {}
"""Of a value that may be anything."""


@dataclass(frozen=True, slots=True)
class Told:
    """What becomes of a key."""

    path: str
    state: Literal["taken", "renamed", "unknown"]
    to: tuple[str, ...]
    """Its keys here, the outermost first; empty where it is unknown."""
    value: Any
    note: str = ""


def _same(value: Any) -> Any:
    return value


def _image(value: Any) -> str:
    """Write `{repository, tag}` as one name."""
    return ":".join(str(value[each]) for each in ("repository", "tag") if value.get(each))


def _variables(value: Any) -> dict[str, str]:
    """Write a list of a container's variables as a map."""
    return {each["name"]: str(each["value"]) for each in value}


def _only(field: str) -> Callable[[Any], Any]:
    """Take a field of a list's single entry."""
    return lambda value: value[0][field] if len(value) == 1 else None


ONLY_HOST, ONLY_SECRET = "its paths are left out: all go to the gateway", "its hosts are left out: there is one"
RENAMED: tuple[tuple[str, str, Callable[[Any], Any], str], ...] = (
    (r"(gateway|config|nats)\.replicaCount", r"\1.replicas", _same, ""),
    (r"global\.imageRegistry|image\.repository", "image.registry", _same, ""),
    (r"(?:global\.)?imagePullSecrets", "image.pullSecrets", _same, ""),
    (r"(gateway|config|workers\.common|workers\.common\.workerSidecar)\.image", r"\1.image", _image, ""),
    (r"(?:gateway\.)?ingress\.ingressClassName", "ingress.className", _same, ""),
    (r"ingress\.hosts", "ingress.host", _only("host"), ONLY_HOST),
    (r"ingress\.tls", "ingress.tlsSecret", _only("secretName"), ONLY_SECRET),
    (r"auth\.enabled", "auth.mode", lambda value: "token" if value else "none", ""),
    (r"hfToken\.secretName", "hfToken.existingSecret", _same, ""),
    (r"hfToken\.(?:secretKey|existingSecretKey)", "hfToken.key", _same, ""),
    (r"serviceMonitor\.additionalLabels", "serviceMonitor.labels", _same, ""),
    (r"(gateway|config|workers\.common|workers\.pools\.[^.]+)\.(?:env|extraEnv)", r"\1.settings", _variables, ""),
    (r"autoscaling\.prometheus(?:Address|Url|ServerAddress)", "autoscaling.prometheus.serverAddress", _same, ""),
)
"""By the whole path: where a key of Helm's usual spelling is here, how its value is written (None is unknown), and
what is left out of it."""
NOTES = {
    "workers.common.workerSidecar.batcher.coalesceMs": "it has no effect: a sidecar sends slices on at once",
    "global": "it has no effect",
}


def read_values(values: Mapping[str, Any], schema: Schema) -> Iterator[Told]:
    """Say what becomes of each leaf; a list is one, and so is a map without keys."""
    stated: dict[tuple[str, ...], str] = {}
    for each in _below(values, schema, schema, ()):
        first = stated.setdefault(each.to, each.path)
        if each.to and first != each.path and not isinstance(each.value, dict):
            yield Told(each.path, "unknown", (), each.value, f"{first} states it too")
        else:
            yield each


def put(told: Told, into: dict[str, Any]) -> None:
    """Put a value at its path here."""
    *parts, last = told.to
    for part in parts:
        into = into.setdefault(part, {})
    into[last] = {**into[last], **told.value} if isinstance(into.get(last), dict) else told.value


def _below(values: Mapping[str, Any], node: Schema, root: Schema, above: tuple[str, ...]) -> Iterator[Told]:
    for key, value in values.items():
        keys = (*above, str(key))
        path = ".".join(keys)
        known = _child(node, str(key), root)
        fits = known is not None and _fits(value, known, root)
        renamed = _renamed(path, value, fits)
        if renamed is not None:
            yield renamed
        elif known is None:
            yield Told(path, "unknown", (), value, NOTES.get(path) or _near(node, str(key), ".".join(above), root))
        elif not fits:
            yield Told(path, "unknown", (), value, f"here it is of type {known.get('type', 'another')}")
        elif isinstance(value, Mapping) and value and known != FREE:
            yield from _below(value, known, root, keys)
        else:
            yield Told(path, "taken", keys, value, NOTES.get(path, NOTES.get(keys[0], "")))


def _renamed(path: str, value: Any, fits: bool) -> Told | None:
    for pattern, to, convert, note in RENAMED:
        match = re.fullmatch(pattern, path)
        target = match and match.expand(to)
        if match is None or (target == path and fits):
            continue
        try:
            written = convert(value)
        except (KeyError, TypeError, AttributeError, IndexError):
            continue
        if target and written is not None:
            return Told(path, "renamed", tuple(target.split(".")), written, note)
    return None


def _resolved(node: Any, root: Schema) -> Schema:
    if not isinstance(node, Mapping):
        return FREE
    reference = node.get("$ref")
    return _resolved(root["$defs"][reference.rpartition("/")[2]], root) if reference else node


def _child(node: Schema, key: str, root: Schema) -> Schema | None:
    """Find the schema of a key; None where it is unknown."""
    node = _resolved(node, root)
    shapes = node.get("patternProperties", {}).items()
    shaped = next((each for pattern, each in shapes if re.search(pattern, key)), node.get("additionalProperties", True))
    found = node.get("properties", {}).get(key, shaped)
    return None if found is False else _resolved(found, root)


def _fits(value: Any, node: Schema, root: Schema) -> bool:
    """Whether a map stands where one may, and nowhere else; Helm checks the rest."""
    types = [_resolved(each, root).get("type") for each in node.get("anyOf", (node,))]
    kinds = {kind for each in types for kind in (each if isinstance(each, list) else [each])}
    return None in kinds or ("object" in kinds) == isinstance(value, Mapping) or value is None


def _near(node: Schema, key: str, above: str, root: Schema) -> str:
    hint = did_you_mean(key, _resolved(node, root).get("properties", {}))
    return f"there is no such key {f'in {above}' if above else 'here'}.{hint}"
