"""Answers `score` with a model that only encodes: encodes the query as a query, the items as documents, and compares.

The adapter sees two `encode` tasks and never learns of it, and their units share batches with anyone's. It must not
know batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sie_core.contracts import (
    Adapter,
    InferenceRequest,
    InvalidInput,
    Item,
    ItemOutput,
    Similarity,
    Task,
    Unit,
)
from sie_core.engine.pipeline.assembly import Assembly
from sie_core.engine.requests.output import Leaving
from sie_core.postprocess import encode_score, require_finite, similarity


def assemble(request: InferenceRequest, task: Task, leaving: Leaving, adapter: Adapter) -> Assembly:
    """Prepare a request, and make what collects the outputs of its units.

    A task of `score` that names an output type asks for scores computed from those vectors.

    Raises:
        InvalidInput: A field of the request is wrong.
        ValueError: The adapter's units do not cover the items; the text is for the log.
    """
    if task.operation != "score" or not task.output_types or task.query is None:
        return Assembly(request, task, leaving, adapter, adapter.prepare(request.items, task))
    document = replace(task, operation="encode", query=None, instruction=None, input_type="document")
    query = replace(document, instruction=task.instruction, input_type="query")
    units = _query_units(adapter, task.query, query)
    for unit in units:
        unit.item = len(request.items)
    units.extend(adapter.prepare(request.items, document))
    by = adapter.facts.similarity.get(task.output_types[0])
    return ScoringAssembly(request, task, leaving, adapter, units, by)


class ScoringAssembly(Assembly):
    """Collects the vectors of documents and of the query, which follows them as the last item.

    A document's vectors are let go as soon as it is scored: a thousand multi-vectors are large.
    """

    def __init__(
        self,
        request: InferenceRequest,
        task: Task,
        leaving: Leaving,
        adapter: Adapter,
        units: Sequence[Unit],
        by: Similarity | None,
    ) -> None:
        super().__init__(request, task, leaving, adapter, units)
        self._by = by
        self._query: ItemOutput | None = None
        self._waiting: dict[int, ItemOutput] = {}
        """Documents that were there before the query."""

    def _inputs(self) -> int:
        return len(self._request.items) + 1

    def _complete(self, item: int) -> None:
        if item < len(self._request.items):
            self._document(item, self._output(item, f"items[{item}]"))
        else:
            self._compare_waiting(self._output(item, "query"))

    def _document(self, item: int, output: ItemOutput) -> None:
        with self._lock:
            query = self._query
            if query is None:
                self._waiting[item] = output
        if query is not None:
            self._compare(query, item, output)

    def _compare_waiting(self, query: ItemOutput) -> None:
        with self._lock:
            self._query = query
            waiting, self._waiting = self._waiting, {}
        for item, output in waiting.items():
            self._compare(query, item, output)

    def _compare(self, query: ItemOutput, item: int, document: ItemOutput) -> None:
        score = similarity(query, document, self._task.output_types[0], self._by)
        require_finite(ItemOutput(score=score), f"items[{item}]")
        self._items[item] = encode_score(score, self._request.items[item].id, self._truncation(item))


def _query_units(adapter: Adapter, query: Item, task: Task) -> list[Unit]:
    """Prepare the query; what is wrong with it is said of `query`, not of the item the adapter takes it for."""
    try:
        return list(adapter.prepare([query], task))
    except InvalidInput as error:
        param = error.param or ""
        if param.startswith("items[0]"):
            raise error.about(f"query{param.removeprefix('items[0]')}") from error
        raise
