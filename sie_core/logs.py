"""Logging: text for people or one JSON object a line, with the request a line belongs to."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

FIELDS = ("model", "request_id", "trace_id", "latency_ms")
"""What a line may carry beside its message, by `extra=` or from the request it was logged in."""


@dataclass(slots=True)
class RequestFields:
    """What is known of the request being answered; the fields fill up as it is read."""

    request_id: str
    trace_id: str | None = None
    model: str | None = None


current_request: ContextVar[RequestFields | None] = ContextVar("current_request", default=None)
"""The request this task works for; tasks it starts inherit it."""


def request_fields() -> RequestFields:
    """Return what is known of the request this task works for.

    Raises:
        LookupError: It works for none.
    """
    fields = current_request.get()
    if fields is None:
        raise LookupError("this task answers no request")
    return fields


def configure_logging(level: str = "INFO", *, as_json: bool = False) -> None:
    """Send every logger of the process to stderr, at `level` and above.

    Libraries that log requests or progress of their own are held at WARNING.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for library in ("uvicorn", "httpx", "httpx2", "httpcore", "urllib3", "filelock", "asyncio"):
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))


class JsonFormatter(logging.Formatter):
    """Writes `timestamp level logger message` and those of `FIELDS` that are known, as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Write `record` in one line."""
        line = {
            "timestamp": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """Writes `timestamp level logger: message [field=value …]`."""

    def format(self, record: logging.LogRecord) -> str:
        """Write `record`, with its traceback below it."""
        fields = " ".join(f"{name}={_visible(value)}" for name, value in _fields(record).items())
        line = f"{_timestamp(record)} {record.levelname:<7} {record.name}: {record.getMessage()}"
        if fields:
            line += f" [{fields}]"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _visible(value: object) -> str:
    """Write what a client sent so that it cannot pass for a line of its own."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    request = current_request.get()
    fields = {name: getattr(record, name, getattr(request, name, None)) for name in FIELDS}
    return {name: value for name, value in fields.items() if value is not None}
