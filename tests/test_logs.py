import json
import logging

import pytest

from sie_core.logs import RequestFields, configure_logging, current_request


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
