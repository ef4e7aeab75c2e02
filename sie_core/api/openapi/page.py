"""`/docs`: the OpenAPI document as one page that loads nothing from other servers."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse, RedirectResponse, Response

from sie_core.api.openapi.descriptions import redirect

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
h2 { border-top: 1px solid #ccc; padding-top: 1rem } code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { background: #f5f5f5; padding: .75rem; overflow: auto } td { padding: .2rem .8rem .2rem 0; vertical-align: top }
"""


def router(app: FastAPI) -> APIRouter:
    """Make the routes over `app`'s own document."""
    routes = APIRouter(tags=["docs"])

    @routes.get("/", **redirect("To `/docs`."))
    async def root() -> Response:
        """Lead browsers to the documentation."""
        return RedirectResponse("/docs")

    @routes.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(render(app.openapi()))

    return routes


def render(document: dict[str, Any]) -> str:
    """Write an OpenAPI document as HTML."""
    info = document["info"]
    operations = "\n".join(
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "\n".join(_body(*named) for named in sorted(document["components"]["schemas"].items()))
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>{escape(info['description'])}</p>"
        f'<p>The same for programs: <a href="/openapi.json">/openapi.json</a></p>'
        f"{operations}<h2>Bodies</h2>{schemas}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(status)}<td>{_schemas(response)}<td>{escape(response['description'])}"
        for status, response in operation["responses"].items()
    )
    body = operation.get("requestBody")
    takes = f"<p>Takes {_schemas(body)}</p>" if body else ""
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('description', ''))}</p>{takes}<table>{rows}</table>"
    )


def _body(name: str, schema: dict[str, Any]) -> str:
    written = json.dumps(schema, indent=1, ensure_ascii=False)
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><pre>{escape(written)}</pre>'


def _schemas(holder: dict[str, Any]) -> str:
    names = (media["schema"].get("$ref", "").rpartition("/")[2] for media in holder.get("content", {}).values())
    return ", ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in dict.fromkeys(names) if name)
