"""Reads untrusted YAML: safe types only, no duplicate keys, bounded expansion of aliases."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

try:
    from yaml import CSafeLoader as FastestLoader
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader as FastestLoader  # type: ignore[assignment]

MOST_NODES = 100_000
"""Bound on the values of a text after expanding its aliases: a few lines of them can stand for billions."""
MOST_CHARACTERS = 2**22
"""The most characters of all of its values then."""
MOST_LEVELS = 100
"""Bound on the nesting of maps and lists; readers of its JSON allow more."""


class YamlFault(Exception):
    """A text is not valid YAML; the message names the place and the fault. `line` counts from 1."""

    def __init__(self, told: str, line: int = 1) -> None:
        super().__init__(told)
        self.line = line


MOST_OPENINGS = 1000
"""Bound on the maps and lists that a text opens, for libyaml: deep ones overflow its stack."""
_OPENINGS = (b"[", b"{", b"- ", b"-\t", b"? ", b"?\t")


LONGEST_NUMBER = 100
"""Characters of a number. YAML 1.1 reads `1:1:1:…` in base sixty, which takes minutes for a long one."""
_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})


class _Once(SafeConstructor):
    """Refuses a key given twice, and numbers that take long to read."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
            told = f"a number has {len(node.value)} characters; {LONGEST_NUMBER} are allowed"
            raise yaml.constructor.ConstructorError(None, None, told, node.start_mark)
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


class _Loader(_Once, yaml.SafeLoader):
    """PyYAML's safe loader, which stops at Python's own bound of nesting."""


class _FastLoader(_Once, FastestLoader):
    """The same over libyaml, five times as fast."""


def load_yaml(content: bytes) -> object:
    """Return the value of a YAML document.

    Raises:
        YamlFault: It is not YAML in UTF-8, nests deeper than `MOST_LEVELS`, holds an unreadable value, repeats a key,
            or its aliases expand to more than `MOST_NODES` values or `MOST_CHARACTERS` characters.
    """
    try:
        text = content.decode("utf-8")
        if sum(map(content.count, _OPENINGS)) <= MOST_OPENINGS:
            with contextlib.suppress(yaml.YAMLError):  # libyaml words the fault differently and gives another position
                return _value(_FastLoader(text))
        return _value(_Loader(text))
    except yaml.YAMLError as error:
        raise YamlFault(f"not valid YAML: {_problem(error)}", _line(error)) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise YamlFault(f"cannot be read: byte {error.start} is not UTF-8", line) from None
    except RecursionError:
        raise YamlFault("cannot be read: it nests too deep") from None
    except (
        ValueError,
        LookupError,
        AttributeError,
        OverflowError,
    ):  # from PyYAML's own parsing of dates, numbers and tagged values
        raise YamlFault("cannot be read: it holds a date, a number or a tagged value that is none") from None


def line_of(content: bytes, path: Iterable[str | int]) -> int:
    """Return the line, counted from 1, of a value of a valid document, or of its nearest existing ancestor.

    Args:
        content: The document.
        path: Keys and positions from the outermost value inwards.
    """
    node = _Loader(content.decode("utf-8")).get_single_node()
    line = 1
    for part in path:
        key, node = (None, None) if node is None else _below(node, part)
        if node is None:
            break
        line = (key or node).start_mark.line + 1
    return line


def _below(node: yaml.Node, part: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return the key and the value of a part of a map or list; no key in a list."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return None, node.value[part]
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == str(part)), (None, None))
    return None, None


def _value(loader: _Loader | _FastLoader) -> object:
    node = loader.get_single_node()
    if node is None:
        return None
    _bound(node)
    return loader.construct_document(node)


@dataclass(frozen=True, slots=True)
class _Extent:
    """The size of a node with aliases expanded."""

    values: int = 1
    characters: int = 0
    levels: int = 0


def _bound(node: yaml.Node) -> None:
    """Refuse a document that expands to too much, contains itself, or nests too deep."""
    extent = _extent(node, {})
    if extent.levels > MOST_LEVELS:
        raise YamlFault(f"cannot be read: it nests too deep; {MOST_LEVELS} levels are allowed")
    if extent.values > MOST_NODES:
        raise YamlFault(f"its aliases expand to more than {MOST_NODES} values: write fewer, without aliases of aliases")
    if extent.characters > MOST_CHARACTERS:
        raise YamlFault(f"its aliases expand to more than {MOST_CHARACTERS} characters: write fewer aliases")


def _extent(node: yaml.Node, known: dict[yaml.Node, _Extent | None]) -> _Extent:
    if isinstance(node, yaml.ScalarNode):
        return _Extent(characters=len(node.value))
    if node in known:
        if (extent := known[node]) is None:
            raise YamlFault("an alias stands for a value that holds it", node.start_mark.line + 1)
        return extent
    known[node] = None
    below = (each for pair in node.value for each in pair) if isinstance(node, yaml.MappingNode) else node.value
    values, characters, levels = 1, 0, 0
    for extent in (_extent(each, known) for each in below):
        values, characters = values + extent.values, characters + extent.characters
        levels = max(levels, extent.levels)
    known[node] = extent = _Extent(values, characters, levels + 1)
    return extent


def _line(error: yaml.YAMLError) -> int:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return 1 if mark is None else mark.line + 1


def _problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error)
