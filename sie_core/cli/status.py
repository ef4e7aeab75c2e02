"""`sie status`: a running server at work: its rate, the time of each stage, memory, models and errors."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from sie_core.cli.models.status import LOCAL, ago, columns, unanswered

RECENT_S: Final = 10.0
"""Seconds over which rate and times are taken."""
DRAWN_S: Final = 1.0
"""Seconds between two pictures."""

Told = Mapping[str, Any]
SORTS: Final[Mapping[str, Callable[[Told], Any]]] = {
    "memory": lambda model: (-(model.get("memory_bytes") or 0), model["name"]),
    "queue": lambda model: (-_queued(model), model["name"]),
    "used": lambda model: (-(model.get("last_used_at") or 0.0), model["name"]),
    "name": lambda model: model["name"],
}
"""The orders of the models; the first letter of each chooses it while the server is watched."""


@click.command("status")
@click.option("--server", envvar="SIE_BASE_URL", default=LOCAL, show_default=True, help="URL of the server.")
@click.option("--api-key", envvar="SIE_API_KEY", help="Token that the server wants.  [env: SIE_API_KEY]")
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C; the keys m, q, u and n sort.")
@click.option(
    "--sort", type=click.Choice(tuple(SORTS)), default="memory", show_default=True, help="The order of the models."
)
def command(server: str, api_key: str | None, watch: bool, sort: str) -> None:
    """Show a running server at work: its rate, the time of each stage, memory, models and errors."""
    from sie_sdk import SIEClient, SIEError

    try:
        with SIEClient(server, api_key=api_key) as client, _keys(watch) as pressed:
            _follow(client.watch(), pressed, sort, watch)
    except KeyboardInterrupt:
        return
    except (SIEError, ValueError) as error:
        raise unanswered(server, error, "watched") from None


def _follow(messages: Iterator[Told], pressed: Callable[[], str], sort: str, watch: bool) -> None:
    """Draw what is told: once, or again and again."""
    recent: deque[Told] = deque()
    drawn = float("-inf")
    for told in messages:
        recent.append(told)
        while len(recent) > 2 and told["timestamp"] - recent[1]["timestamp"] >= RECENT_S:
            recent.popleft()
        key = pressed()
        sort = next((name for name in SORTS if key and name.startswith(key)), sort)
        if len(recent) < 2 or (not key and time.monotonic() - drawn < DRAWN_S):
            continue
        drawn = time.monotonic()
        if watch and sys.stdout.isatty():
            click.clear()
        click.echo("\n".join(picture(recent[0], told, sort)))
        if not watch:
            return


def picture(before: Told, told: Told, sort: str) -> list[str]:
    """Lay out a message of `/ws/status` or `/ws/cluster-status`; rates are since the message `before`."""
    lines = [*_summary(before, told), ""]
    models = [model for model in told["models"] if model["state"] != "available" or _queued(model)]
    rows = [_row(model, told["timestamp"]) for model in sorted(models, key=SORTS[sort])]
    lines += columns([("MODEL", "STATE", "MEMORY", "QUEUED", "LAST USE"), *rows]) if rows else ["No model is loaded."]
    if errors := told["traffic"]["errors"]:
        last = sorted(errors.items(), key=lambda each: -each[1]["last_at"])
        failed = [(code, str(each["count"]), ago(told["timestamp"] - each["last_at"])) for code, each in last]
        lines += ["", *columns([("ERROR", "COUNT", "LAST"), *failed])]
    return lines


def _summary(before: Told, told: Told) -> Iterator[str]:
    traffic, earlier = told["traffic"], before["traffic"]
    seconds, answered = told["timestamp"] - before["timestamp"], traffic["answered"] - earlier["answered"]
    yield f"{answered / seconds if seconds > 0 else 0.0:.1f} requests/s, {traffic['answered']} since the start"
    if answered:
        spent = {stage: total - earlier["stage_seconds"][stage] for stage, total in traffic["stage_seconds"].items()}
        yield "mean of each stage: " + ", ".join(f"{stage} {1000 * s / answered:.1f} ms" for stage, s in spent.items())
    if memory := told.get("memory"):
        used, total = _size(memory["used_bytes"]), _size(memory["total_bytes"])
        yield f"memory of {memory['device']}, all processes: {used} of {total}"
    if workers := told.get("workers"):
        yield f"{sum(each['healthy'] for each in workers)} of {len(workers)} workers are healthy"


def _row(model: Told, now: float) -> tuple[str, ...]:
    state, used = model["state"], model.get("last_used_at")
    if fetched := (model.get("notes") or {}).get("fetch"):
        state += f": {fetched}"
    if state == "failed" and model.get("last_error"):
        state += f": {model['last_error']['message']}"
    memory = _size(model["memory_bytes"]) if model.get("memory_bytes") else ""
    return model["name"], state, memory, str(_queued(model)), "" if used is None else ago(now - used)


def _queued(model: Told) -> int:
    return int(model.get("queue_depth", model.get("total_queue_depth", 0)))


def _size(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


@contextmanager
def _keys(watch: bool) -> Iterator[Callable[[], str]]:
    """Give what reads the key that was pressed, empty where none was; a terminal is put into order again."""
    if not (watch and sys.stdin.isatty() and os.name == "posix"):
        yield lambda: ""
        return
    import select
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield lambda: os.read(terminal, 1).decode("ascii", "replace") if select.select([terminal], [], [], 0)[0] else ""
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
