"""Writes a page as one reply that loads nothing: its style and its script are in it, and no other may run."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response

from sie_core import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

_FILES: Final = Path(__file__).with_name("files")


def wants_page(headers: Headers) -> bool:
    """Whether a client is a browser: programs do not accept `text/html` by that name."""
    return "text/html" in headers.get("accept", "")


def page(template: str, status: int = 200, headers: dict[str, str] | None = None, **context: Any) -> Response:
    """Render one of the templates in `files/`.

    Args:
        template: The name of its file.
        status: Of the reply.
        headers: Of the reply, beside those of every page.
        context: What the template reads.
    """
    own = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": _policy(),
        "Referrer-Policy": "no-referrer",
        "Vary": "Accept",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(_templates().get_template(template).render(context), status, {**own, **(headers or {})})


@cache
def _templates() -> Environment:
    """Load the templates; Jinja is not imported before somebody looks at a page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=FileSystemLoader(_FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(version=__version__, style=Markup(_read("style.css")), script=Markup(_script()))
    templates.filters.update(coded=lambda text: Markup(_coded(text)), prose=lambda text: Markup(_prose(text)))
    return templates


def _coded(text: str) -> str:
    """Write a description of the OpenAPI document as HTML, with code between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text.strip()))


def _prose(text: str) -> str:
    """Write a description as paragraphs."""
    return "".join(f"<p>{part}</p>" for part in re.split(r"\n\s*\n", _coded(text)))


@cache
def _policy() -> str:
    """Allow the style and the script of `files/` by their hashes, and requests to this server alone."""
    script, style = _source(_script()), _source(_read("style.css"))
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _script() -> str:
    return _read("live.js") + _read("page.js")


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{b64encode(digest).decode()}'"


@cache
def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")
