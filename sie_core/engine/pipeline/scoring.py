"""Scores items with a model that only encodes: the query is encoded as a query, the items as documents, and compared.

The adapter sees two `encode` tasks, and their units share batches with anyone's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

from sie_core.contracts import (
    Adapter,
    InferenceRequest,
    InvalidInput,
    ItemOutput,
    OutputType,
    Similarity,
    Task,
    Unit,
)
from sie_core.postprocess import similarity


def encoded_units(request: InferenceRequest, task: Task, adapter: Adapter) -> Iterator[Unit]:
    """Prepare the query and the documents of a `score`; the query comes first, as the item after the documents."""
    assert task.query is not None
    as_document = replace(task, operation="encode", query=None, instruction=None, input_type="document")
    as_query = replace(as_document, instruction=task.instruction, input_type="query")
    try:
        for unit in adapter.prepare([task.query], as_query):
            unit.item = len(request.items)
            yield unit
    except InvalidInput as error:
        # What is wrong with it is said of `query`, not of the item the adapter takes it for.
        param = error.param or ""
        if param.startswith("items[0]"):
            raise error.about(f"query{param.removeprefix('items[0]')}") from error
        raise
    yield from adapter.prepare(request.items, as_document)


class Comparison:
    """Compares documents with their query as the vectors come; from several threads at once."""

    def __init__(self, name: OutputType, by: Similarity | None) -> None:
        self._name = name
        self._by = by
        self._lock = threading.Lock()
        self._query: ItemOutput | None = None
        # Documents that were there before the query. Others are dropped at once: a thousand multi-vectors are large.
        self._waiting: dict[int, ItemOutput] = {}

    def add_document(self, item: int, output: ItemOutput) -> dict[int, float]:
        """Take a document's vectors; return its score by its item, or nothing before the query is there."""
        with self._lock:
            query = self._query
            if query is None:
                self._waiting[item] = output
                return {}
        return {item: similarity(query, output, self._name, self._by)}

    def add_query(self, query: ItemOutput) -> dict[int, float]:
        """Take the vectors of the query; return the scores of the documents that waited, by their items."""
        with self._lock:
            self._query = query
            waiting, self._waiting = self._waiting, {}
        return {item: similarity(query, output, self._name, self._by) for item, output in waiting.items()}
