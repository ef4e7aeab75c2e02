"""gliner in a separate process: `python worker.py FOLDER` loads a checkpoint and answers questions, a line each.

A question is a JSON object with `texts`, `labels` and `options`, the keyword arguments of gliner's `inference`. An
answer is a list with the entities and relations of each text; texts are read one by one. It runs in gliner's
environment, and imports nothing else outside the standard library.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Load, report it, and answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    from gliner import GLiNER

    model = GLiNER.from_pretrained(sys.argv[1], local_files_only=True, map_location="cpu", strict=True)
    print(json.dumps("loaded"), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        found = [_inferred(model, text, asked["labels"], asked["options"]) for text in asked["texts"]]
        print(json.dumps(found), file=answers, flush=True)


def _inferred(model: Any, text: str, labels: list[str], options: dict[str, Any]) -> list[Any]:
    said = model.inference([text], labels, **options)
    entities, relations = said if isinstance(said, tuple) else (said, [[]])
    return [entities[0], relations[0]]


if __name__ == "__main__":
    main()
