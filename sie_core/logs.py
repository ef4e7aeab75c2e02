"""Logging: text for people or one JSON object a line, each with the request that it belongs to."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TextIO

import orjson

if TYPE_CHECKING:
    from sie_core.contracts import Trace, Tracer

FIELDS = ("model", "request_id", "trace_id", "latency_ms")
"""Extra fields of a line, given by `extra=` or taken from the request being answered."""

ACCESS: Final = "sie_core.access"
"""The logger of answered requests: one line each, with its `latency_ms`."""
AccessLog = Literal["off", "slow", "all"]
"""Which answered requests are logged."""
SLOW_MS: Final = 1000.0
"""Requests that take at least this many milliseconds are logged as slow; a person waiting longer loses the thread."""

TOGETHER_S: Final = 0.05
"""Lines of requests answered within this many seconds are written together.

A write releases the interpreter's lock, and under load the event loop waits longer for the lock than for the system
call.
"""

REPEATS_S: Final = 10.0
"""Warnings and errors of one wording are counted for this many seconds."""
MOST_REPEATS: Final = 100
"""Of those this many are written, and then the number of the others: more than there are plugins or configs with a
fault of one kind, and few enough that other lines are found."""


@dataclass(slots=True)
class RequestFields:
    """The known fields of the request being answered; they fill up as it is read."""

    request_id: str
    trace_id: str | None = None
    model: str | None = None
    trace: Trace | None = None
    """Where the request is recorded."""
    is_sampled: bool = True
    """False where a tracer chose not to record it."""

    @property
    def traceparent(self) -> str | None:
        """What those are sent that work for it; None where it has no trace."""
        if self.trace is not None:
            return self.trace.traceparent
        if self.trace_id is None:
            return None
        return f"00-{self.trace_id}-{random.getrandbits(64) or 1:016x}-{self.is_sampled:02x}"

    def begin(self, tracer: Tracer, name: str, started: float, headers: Mapping[str, str], *, queued: bool) -> None:
        """Have a tracer choose whether the request is recorded."""
        self.trace_id, self.trace = tracer.begin(name, started, headers, queued=queued)
        self.is_sampled = self.trace is not None


current_request: ContextVar[RequestFields | None] = ContextVar("current_request", default=None)
"""The request this task works for; tasks it starts inherit it."""


def request_fields() -> RequestFields:
    """Return the known fields of the request that this task works for.

    Raises:
        LookupError: It works for no request.
    """
    fields = current_request.get()
    if fields is None:
        raise LookupError("this task answers no request")
    return fields


def trace_apart(name: str, started: float, ended: float, error: str | None = None, **facts: object) -> None:
    """Record what this task did for its request, where the trace of that is recorded; see `Trace.apart`."""
    fields = current_request.get()
    if fields is not None and fields.trace is not None:
        fields.trace.apart(name, started, ended, [fields.trace], error, **facts)


def configure_logging(level: str = "INFO", *, as_json: bool = False, access: AccessLog = "off") -> None:
    """Send every logger of the process to stderr, at `level` and above.

    Libraries with their own logs of requests or progress are held at WARNING.

    Args:
        level: The least level that is logged.
        as_json: Whether a line is one JSON object.
        access: Which answered requests have a line.
    """
    handler = LineHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.getLogger().handlers[:] = [handler]
    # Skip collecting fields that no line shows, as the manual of `logging` advises.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    set_levels(level, access)


def set_levels(level: str, access: AccessLog) -> None:
    """Choose what is logged from now on; see `configure_logging`."""
    root = logging.getLogger()
    root.setLevel(level)
    for library in ("uvicorn", "httpx", "httpx2", "httpcore", "urllib3", "filelock", "asyncio"):
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))
    answered = logging.getLogger(ACCESS)
    answered.setLevel(logging.CRITICAL + 1 if access == "off" else logging.NOTSET)
    answered.filters[:] = [_is_slow] if access == "slow" else []


def _is_slow(record: logging.LogRecord) -> bool:
    return getattr(record, "latency_ms", 0.0) >= SLOW_MS


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes a line at once, except those of answered requests, which have a `latency_ms` and are written within
    `TOGETHER_S`.

    Lines stay in order: a line that is written at once takes the waiting ones along. A process that is killed loses the
    lines of its last `TOGETHER_S`. Of warnings and errors of one wording, their arguments aside, it writes
    `MOST_REPEATS` in `REPEATS_S`; before the next line after that time it writes how many there were beyond.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._waiting: list[str] = []
        self._written = -TOGETHER_S
        self._repeats: Counter[tuple[str, int, str]] = Counter()
        self._counted_since = -REPEATS_S

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record`, now or with the following ones."""
        try:
            if self._repeats and self._clock() - self._counted_since >= REPEATS_S:
                self._tell_repeats()
            if record.levelno >= logging.WARNING and self._is_repeat(record):
                return
            self._waiting.append(self.format(record) + self.terminator)
            if not self._may_wait(record):
                self.flush()
            elif len(self._waiting) == 1:
                asyncio.get_running_loop().call_later(TOGETHER_S, self.flush)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Write the lines that wait."""
        with self.lock or nullcontext():
            lines, self._waiting = self._waiting, []
            if lines:
                self._written = self._clock()
                self.stream.write("".join(lines))
                self.stream.flush()

    def close(self) -> None:
        """Write what was counted."""
        with self.lock or nullcontext():
            self._tell_repeats()
            self.flush()
        super().close()

    def _is_repeat(self, record: logging.LogRecord) -> bool:
        if not self._repeats:
            self._counted_since = self._clock()
        kind = record.name, record.levelno, str(record.msg)
        self._repeats[kind] += 1
        return self._repeats[kind] > MOST_REPEATS

    def _tell_repeats(self) -> None:
        for (name, level, wording), times in self._repeats.items():
            if times > MOST_REPEATS:
                told = f"… {times - MOST_REPEATS} more in {REPEATS_S:g} s: {wording}"
                record = logging.LogRecord(name, level, "", 0, told, (), None)
                vars(record).update(dict.fromkeys(FIELDS))  # they were of many requests
                self._waiting.append(self.format(record) + self.terminator)
        self._repeats.clear()

    def _may_wait(self, record: logging.LogRecord) -> bool:
        # A line waits only shortly after the last write. If the event loop stops before it writes the waiting lines,
        # the next line does.
        if record.levelno > logging.INFO or not hasattr(record, "latency_ms"):
            return False
        return self._clock() - self._written < TOGETHER_S and _has_loop()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class JsonFormatter(logging.Formatter):
    """Writes `timestamp level logger message` and the known `FIELDS` as one JSON object.

    A record with `facts` also has them as fields, by their names.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write `record` in one line."""
        line = {
            "timestamp": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
            **getattr(record, "facts", {}),
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
    """Escape text from a client so that it cannot imitate a line of the log."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def _timestamp(record: logging.LogRecord) -> str:
    second, rest = divmod(record.created, 1)
    return f"{_second(int(second))}.{int(1000 * rest):03d}Z"


@lru_cache(maxsize=2)
def _second(since_epoch: int) -> str:
    return datetime.fromtimestamp(since_epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    request = current_request.get()
    fields = {name: getattr(record, name, getattr(request, name, None)) for name in FIELDS}
    return {name: value for name, value in fields.items() if value is not None}
