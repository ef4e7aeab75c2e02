"""`sie models status`: state, memory and last use of each model of a running server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sie_sdk.types import ModelInfo

LOCAL = "http://127.0.0.1:8080"
FIELDS = ("name", "state", "precision", "runner", "memory_bytes", "last_used_at", "pinned", "last_error", "notes")


@click.command("status")
@click.option("--server", envvar="SIE_BASE_URL", default=LOCAL, show_default=True, help="URL of the server.")
@click.option("--api-key", envvar="SIE_API_KEY", help="Token that the server wants.  [env: SIE_API_KEY]")
@click.option("--all", "every", is_flag=True, help="Models that were never asked for too.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
def status(server: str, api_key: str | None, every: bool, as_json: bool) -> None:
    """Show what a running server holds: state, memory and last use of each model."""
    found = [{field: model.get(field) for field in FIELDS} for model in _ask(server, api_key)]
    rows = [row for row in found if every or row["state"] != "available" or row.get("last_used_at")]
    if as_json:
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif rows:
        click.echo("\n".join(table(rows, time.time())))
    else:
        click.echo(f"{shown_url(server)} serves {len(found)} models, and none was asked for yet.")


def shown_url(url: str) -> str:
    """Leave out a password."""
    return re.sub(r"//[^/]*@", "//…@", url)


def unanswered(server: str, error: Exception, what: str) -> click.ClickException:
    """Say that a server cannot be watched, or asked, and what to do."""
    refused = getattr(error, "code", None) == "UNAUTHORIZED"
    start = "Start a server with `sie serve`, or name one by --server"
    remedy = "Give --api-key, or set SIE_API_KEY" if refused else start
    return click.ClickException(f"{shown_url(server)} cannot be {what}: {str(error).removesuffix('.')}. {remedy}.")


def _ask(server: str, api_key: str | None) -> list[ModelInfo]:
    from sie_sdk import SIEClient, SIEError

    try:
        with SIEClient(server, api_key=api_key) as client:
            return client.list_models()
    except (SIEError, ValueError) as error:
        raise unanswered(server, error, "asked") from None


def table(rows: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """Lay out rows of `/v1/models`, the last used first; `now` is seconds since 1970."""
    ordered = sorted(rows, key=lambda row: (-(row.get("last_used_at") or 0.0), row["name"]))
    cells = [(row["name"], *_cells(row, now)) for row in ordered]
    return columns([("MODEL", "STATE", "SERVED BY", "MEMORY", "LAST USE"), *cells])


def columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells of lines."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _cells(row: Mapping[str, Any], now: float) -> tuple[str, str, str, str]:
    state = f"{row['state']}, pinned" if row["pinned"] else row["state"]
    if row["last_error"]:
        state += f": {row['last_error']['message']}"
    if fetched := (row.get("notes") or {}).get("fetch"):
        state += f": {fetched}"
    memory, used = row.get("memory_bytes"), row.get("last_used_at")
    served = " ".join(filter(None, (row.get("precision"), row.get("runner"))))
    return (
        state,
        served,
        "" if memory is None else f"{memory / 1e6:.0f} MB",
        "never" if used is None else ago(now - used),
    )


def ago(seconds: float) -> str:
    """Say how long ago something was, in round numbers."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
