import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema_rs import validator_for

from sie_core.logs import (
    ACCESS,
    MOST_REPEATS,
    REPEATS_S,
    SLOW_MS,
    AccessLog,
    JsonFormatter,
    LineHandler,
    RequestFields,
    configure_logging,
    current_request,
)
from sie_core.settings import describe_settings

SCHEMA = json.loads((Path(__file__).parents[1] / "docs/operate/observe/log.schema.json").read_text())


def test_a_json_line_holds_what_is_known_of_its_request(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(as_json=True)
    token = current_request.set(RequestFields("r1", trace_id="t1"))
    try:
        logging.getLogger("a.b").warning("took %d\nlines", 2, extra={"model": "org/m", "latency_ms": 1.5})
    finally:
        current_request.reset(token)
    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "a.b",
        "message": "took 2\nlines",
        "model": "org/m",
        "request_id": "r1",
        "trace_id": "t1",
        "latency_ms": 1.5,
    }


def test_a_traceback_stays_in_its_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(as_json=True)
    try:
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("a").exception("outer")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: inner" in json.loads(line)["exception"]


def test_a_text_line_shows_fields_only_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    logging.getLogger("a").info("plain")
    logging.getLogger("a").info("with", extra={"model": "org/m"})
    plain, with_fields = capsys.readouterr().err.splitlines()
    assert plain.endswith("INFO    a: plain")
    assert with_fields.endswith("a: with [model=org/m]")


def test_the_level_holds_for_every_logger_and_libraries_stay_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("WARNING")
    logging.getLogger("a").info("no")
    configure_logging("DEBUG")
    logging.getLogger("httpx").info("no")
    logging.getLogger("a").debug("yes")
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()] == ["yes"]


def test_a_field_cannot_write_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    logging.getLogger("a").info("asked", extra={"model": "org/m\nERROR forged"})
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_lines_of_answered_requests_in_quick_succession_are_written_together_and_in_order() -> None:
    stream = Writes()
    handler = LineHandler(stream, clock=lambda: 0.0)

    async def answer_requests() -> None:
        handler.handle(answered("0"))
        for number in range(1, 4):
            handler.handle(answered(str(number)))
        assert stream.writes == ["0\n"]
        async with asyncio.timeout(30):
            await stream.written(2)
        for number in range(4, 6):
            handler.handle(answered(str(number)))
        handler.handle(logging.LogRecord("a", logging.WARNING, "", 0, "odd", (), None))

    asyncio.run(answer_requests())
    assert stream.writes == ["0\n", "1\n2\n3\n", "4\n5\nodd\n"]


def test_a_line_that_waits_is_written_when_the_process_ends() -> None:
    code = (
        "import asyncio, logging; from sie_core.logs import configure_logging; configure_logging()\n"
        "async def main():\n for n in range(3): logging.info('line %d', n, extra={'latency_ms': 1})\n"
        "asyncio.run(main())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    assert [line.split(": ")[1][:6] for line in ran.stderr.splitlines()] == ["line 0", "line 1", "line 2"]


def test_a_thread_without_an_event_loop_writes_its_lines_at_once() -> None:
    stream = Writes()
    handler = LineHandler(stream, clock=lambda: 0.0)
    for number in range(3):
        handler.handle(answered(str(number)))
    assert len(stream.writes) == 3


def test_of_a_flood_of_one_wording_few_are_written_and_the_others_counted() -> None:
    now, stream = [0.0], io.StringIO()
    handler = LineHandler(stream, clock=lambda: now[0])
    handler.setFormatter(JsonFormatter())
    token = current_request.set(RequestFields("r1"))

    def warn(wording: str, *args: object, level: int = logging.WARNING) -> None:
        handler.handle(logging.LogRecord("a", level, "", 0, wording, args, None))

    def written() -> list[str]:
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.seek(0)
        stream.truncate()
        assert all(("request_id" in line) != line["message"].startswith("…") for line in lines)
        return [line["message"] for line in lines]

    try:
        for number in range(MOST_REPEATS + 412):
            warn("%d failed", number)
        warn("another")
        warn("told", level=logging.INFO)
        assert written() == [*(f"{number} failed" for number in range(MOST_REPEATS)), "another", "told"]
        now[0] = REPEATS_S
        warn("told", level=logging.INFO)
        assert written() == ["… 412 more in 10 s: %d failed", "told"]
        for number in range(MOST_REPEATS + 1):
            warn("%d failed", number)
        handler.close()
        assert written()[-2:] == [f"{MOST_REPEATS - 1} failed", "… 1 more in 10 s: %d failed"]
    finally:
        current_request.reset(token)


def answered(message: str) -> logging.LogRecord:
    record = logging.LogRecord("a", logging.INFO, "", 0, message, (), None)
    record.latency_ms = 1.0
    return record


class Writes(io.StringIO):
    """A stream that knows how it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self._more = asyncio.Event()

    def write(self, text: str) -> int:
        self.writes.append(text)
        self._more.set()
        return len(text)

    async def written(self, times: int) -> None:
        while len(self.writes) < times:
            self._more.clear()
            await self._more.wait()


@pytest.mark.parametrize(("access", "told"), [("off", []), ("slow", ["slow"]), ("all", ["quick", "slow"])])
def test_answered_requests_have_the_lines_that_are_asked_for(
    capsys: pytest.CaptureFixture[str], access: AccessLog, told: list[str]
) -> None:
    configure_logging("DEBUG", access="slow")
    configure_logging("DEBUG", access=access)
    for message, latency_ms in (("quick", SLOW_MS - 1), ("slow", SLOW_MS)):
        logging.getLogger(ACCESS).info(message, extra={"latency_ms": latency_ms})
    assert re.findall(rf"{ACCESS}: (\w+) \[", capsys.readouterr().err) == told


def test_the_bound_of_slow_requests_is_the_one_that_the_setting_names() -> None:
    description = next(text for name, _, text in describe_settings() if name == "SIE_ACCESS_LOG")
    assert f"took {SLOW_MS / 1000:g} s or longer" in description


def test_the_facts_of_a_message_are_fields_of_its_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (True, False):
        configure_logging(as_json=as_json)
        logging.getLogger("a").info("served at u", extra={"facts": {"url": "u"}})
    structured, text = capsys.readouterr().err.splitlines()
    assert json.loads(structured)["url"] == "u"
    assert text.endswith("a: served at u")


def test_json_lines_are_what_the_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("DEBUG", as_json=True)
    token = current_request.set(RequestFields("r1", trace_id="t1", model="org/m"))
    try:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
            logging.getLogger("a").log(level, "x", extra={"latency_ms": 1.5, "facts": {"url": "u", "attempts": 2}})
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("a").exception("outer")
    finally:
        current_request.reset(token)
    logging.getLogger("a").info("without a request")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    schema = validator_for(SCHEMA)
    assert [error.message for line in lines for error in schema.iter_errors(line)] == []
    assert {name for line in lines for name in line} == {*SCHEMA["properties"], "url", "attempts"}
    assert not schema.is_valid({**lines[0], "timestamp": "yesterday"})
