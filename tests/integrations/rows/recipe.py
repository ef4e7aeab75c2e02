"""Run a recipe of a page beside a PostgreSQL with pgvector, whose address takes the place of the page's."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

ask = json.load(sys.stdin)
sys.path[:0] = ask["paths"]

code, printed = ask["code"], io.StringIO()
with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.ExitStack() as running:
    if "postgresql://" in code:
        import pgserver

        data = Path(folder, "data")
        data.mkdir()
        database = running.enter_context(pgserver.get_server(data))
        code = code.replace("postgresql://127.0.0.1/postgres", database.get_uri())
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "recipe"})
json.dump({"printed": printed.getvalue()}, sys.stdout)
