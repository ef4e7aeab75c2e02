"""The published client in a process of its own, called as our own client is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from select import select
from subprocess import Popen
from typing import Any

LONGEST_ANSWER_S = 100
IS_QUERY = {"query": True, "document": False, None: None}
"""How it says `input_type`."""


class PublishedClient:
    """Calls go to `scripts/published_calls.py`, a line of JSON each."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    def encode(
        self, model: str, items: Sequence[Mapping[str, Any]], *, output_types: list[str], input_type: str | None
    ) -> Any:
        asked = {"output_types": output_types, "is_query": IS_QUERY[input_type]}
        return self._call("encode", model=model, items=items, **asked)

    def score(self, model: str, query: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Any:
        return self._call("score", model=model, query=query, items=items)

    def extract(self, model: str, items: Sequence[Mapping[str, Any]], *, labels: list[str]) -> Any:
        return self._call("extract", model=model, items=items, labels=labels)

    def _call(self, operation: str, **arguments: Any) -> Any:
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None
        assert told is not None
        print(json.dumps({"operation": operation, **arguments}, default=bytes.hex), file=asked, flush=True)
        assert select([told], [], [], LONGEST_ANSWER_S)[0], f"no answer to {operation} in {LONGEST_ANSWER_S} s"
        line = told.readline()
        assert line, "the published client is gone; its last words are in the captured output"
        answer = json.loads(line)
        assert "raised" not in answer, answer["raised"]
        return answer["returned"]
