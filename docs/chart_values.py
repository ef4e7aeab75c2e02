"""Makes the schema of the chart's values, and their table, from `values.yaml` and its comments.

Each value is of its default's type. A comment after a key, `# @schema …`, says what is allowed beside or instead:
keywords of JSON Schema as YAML writes them, and one of

- `TYPE`: a type of JSON Schema, or one of the list below `# @types` at the end of the file;
- `list of TYPE`, `map of TYPE`, and `map of TYPE by TYPE`, whose keys match the pattern of the second.

Where a map states one of these, its keys are not looked at. Maps that state none have the keys of `values.yaml` alone.
The comment above a key is its meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "helm/sie-cluster"
TYPES = {bool: "boolean", int: "integer", str: "string"}
JSON_TYPES = {*TYPES.values(), "number", "object", "array"}
Schema = dict[str, Any]


class ChartValues:
    """The values of a chart, and what is said of them."""

    def __init__(self, text: str) -> None:
        own, _, types = text.partition("\n# @types\n")
        self._lines = own.splitlines()
        root = yaml.compose(own)
        assert isinstance(root, yaml.MappingNode)
        self._root = root
        self._types = yaml.safe_load(re.sub(r"^# ?", "", types, flags=re.MULTILINE))

    def schema(self) -> str:
        """Write the schema. Helm gives every chart a map of values that subcharts share, `global`."""
        made = self._made(self._root, {"properties": {"global": "object"}})
        defined = {name: self._spelled(spec) for name, spec in self._types.items()}
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Values of sie-cluster"}
        return json.dumps({**head, **made, "$defs": defined}, indent=2) + "\n"

    def _spelled(self, spec: Any) -> Schema:
        """Write a spec as JSON Schema has it."""
        if isinstance(spec, str):
            spec = {spec: None}
        found: Schema = {}
        for key, value in spec.items():
            if value is None:
                found |= self._named(key)
            elif key == "properties":
                own = {name: self._spelled(each) for name, each in value.items()}
                found |= {"type": "object", "additionalProperties": False, "properties": own}
            else:
                found[key] = [self._spelled(each) for each in value] if key == "anyOf" else value
        return found

    def _named(self, name: str) -> Schema:
        kind, of, rest = name.partition(" of ")
        if not of:
            return {"type": name} if name in JSON_TYPES else {"$ref": f"#/$defs/{self._known(name)}"}
        if kind == "list":
            return {"type": "array", "items": self._named(rest)}
        assert kind == "map", name
        value, by, keys = rest.partition(" by ")
        if not by:
            return {"type": "object", "additionalProperties": self._named(value)}
        shapes = {self._types[self._known(keys)]["pattern"]: self._named(value)}
        return {"type": "object", "patternProperties": shapes, "additionalProperties": False}

    def _known(self, name: str) -> str:
        assert name in self._types, f"values.yaml: `{name}` is no type below `# @types`"
        return name

    def _said(self, key: yaml.Node) -> Schema:
        """Read the comment after a key."""
        found = re.search(r"# @schema (.*)", self._lines[key.start_mark.line])
        read: Schema = yaml.safe_load(f"{{{found[1]}}}") if found else {}
        return read

    def _meaning(self, key: yaml.Node) -> str:
        """Read the comment above a key."""
        first = end = key.start_mark.line
        while first and self._lines[first - 1].lstrip().startswith("# "):
            first -= 1
        return " ".join(line.lstrip(" #") for line in self._lines[first:end])

    def _made(self, value: yaml.Node, said: Schema) -> Schema:
        """Make the schema of a value by what is said of it and by its default."""
        spelled = self._spelled(said)
        if _stated(said):
            return spelled
        if isinstance(value, yaml.MappingNode):
            assert value.value, f"values.yaml, line {value.start_mark.line + 1}: say what is in the map"
            own = {key.value: self._made(each, self._said(key)) for key, each in value.value}
            return {"type": "object", "additionalProperties": False, "properties": own | spelled.get("properties", {})}
        return {"type": TYPES[type(yaml.safe_load(yaml.serialize(value)))], **spelled}

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield each value: its path, default, what is allowed, and its meaning."""
        yield from self._rows(self._root, "")

    def _rows(self, node: yaml.MappingNode, above: str) -> Iterator[tuple[str, str, str, str]]:
        for key, value in node.value:
            path, said, meaning = f"{above}{key.value}", self._said(key), self._meaning(key)
            if isinstance(value, yaml.MappingNode) and not _stated(said):
                if meaning:
                    yield f"`{path}`", "", "", meaning
                yield from self._rows(value, f"{path}.")
                continue
            default, schema = yaml.safe_load(yaml.serialize(value)), self._made(value, said)
            entry: Schema = next(iter(schema.get("patternProperties", {}).values()), {})
            fields = self._followed(entry).get("properties", {})
            shown = ", ".join(default) if fields else json.dumps(default, ensure_ascii=False)
            yield f"`{path}`", f"`{shown}`", "map" if fields else self._allowed(schema), meaning
            for name, each in fields.items():
                yield f"`{path}.NAME.{name}`", "", self._allowed(each), ""

    def _followed(self, schema: Schema) -> Schema:
        return self._spelled(self._types[schema["$ref"].rpartition("/")[2]]) if "$ref" in schema else schema

    def _allowed(self, schema: Schema) -> str:
        """Say what is allowed in the words of the docs."""
        followed = self._followed(schema)
        if "description" in followed:
            return str(followed["description"])
        if "anyOf" in followed:
            return " or ".join(self._allowed(each) for each in followed["anyOf"])
        if "enum" in followed or "const" in followed:
            return ", ".join(f"`{json.dumps(each)}`" for each in followed.get("enum", [followed.get("const")]))
        kind = followed["type"]
        if kind == "array":
            return f"list: {self._allowed(followed['items'])}"
        if kind == "object":
            others = followed.get("additionalProperties") or next(
                iter(followed.get("patternProperties", {}).values()), {}
            )
            inner = ", ".join(f"`{name}`" for name in followed.get("properties", ())) or self._allowed(others)
            return f"map: {inner}"
        limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
        told = [f"{sign} {followed[name]}" for name, sign in limits.items() if name in followed]
        return " ".join([kind, ", ".join(told)]).strip()


def _stated(said: Schema) -> bool:
    """Whether a type is, in place of the default's."""
    return None in said.values() or bool({"enum", "anyOf"} & set(said))


def of_chart() -> ChartValues:
    """Read those of this project's chart."""
    return ChartValues((CHART / "values.yaml").read_text())
