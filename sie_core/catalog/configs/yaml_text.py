"""Reads YAML that others write: safe types alone, no key twice, and a bound on what its aliases expand to."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

MOST_NODES = 100_000
"""The most values of a text once its aliases are expanded: a few lines of them can stand for billions."""


class YamlFault(Exception):
    """A text is not the YAML it should be; the message says where and why."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also refuses a key given twice."""

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


def load_yaml(content: bytes) -> object:
    """Return the value of a YAML document.

    Raises:
        YamlFault: It is no YAML in UTF-8, nests too deep, holds a value that cannot be read, gives a key twice, or its
            aliases expand to more than `MOST_NODES` values.
    """
    try:
        loader = _Loader(content.decode("utf-8"))
        node = loader.get_single_node()
        if node is None:
            return None
        _bound(node)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise YamlFault(f"not valid YAML: {_problem(error)}") from None
    except UnicodeDecodeError as error:
        raise YamlFault(f"cannot be read: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise YamlFault("cannot be read: it nests too deep") from None
    except (ValueError, LookupError, AttributeError):  # from PyYAML's own parsing of dates, numbers and tagged values
        raise YamlFault("cannot be read: it holds a date, a number or a tagged value that is none") from None


def _bound(node: yaml.Node) -> None:
    """Refuse a document whose aliases expand to too many values, or that holds itself."""
    if _values(node, {}) > MOST_NODES:
        raise YamlFault(f"its aliases expand to more than {MOST_NODES} values: write fewer, without aliases of aliases")


def _values(node: yaml.Node, known: dict[yaml.Node, int | None]) -> int:
    """Count the values below a node with aliases expanded."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node in known:
        if (values := known[node]) is None:
            raise YamlFault("an alias stands for a value that holds it")
        return values
    known[node] = None
    below = (each for pair in node.value for each in pair) if isinstance(node, yaml.MappingNode) else node.value
    known[node] = values = 1 + sum(_values(each, known) for each in below)
    return values


def _problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error)
