"""What the variables of OpenTelemetry may say, and what is imported without tracing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("opentelemetry.sdk", reason="sie-core[tracing] is not installed")

from sie_core.settings import Settings, SettingsError
from sie_core.tracing import make_tracer
from sie_core.tracing.otel import OtelTracer


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "jaeger"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
        ("OTEL_TRACES_SAMPLER_ARG", "half"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:port"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "²"),
    ],
)
def test_a_wrong_value_stops_the_start_and_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as told:
        OtelTracer.of_environment("sie", {variable: value})
    assert str(told.value).startswith(f"{variable}={value!r} is not allowed: ")
    assert "Correct it, or unset SIE_TRACING_ENABLED." in str(told.value)


def test_a_batch_larger_than_the_queue_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096")
    with pytest.raises(SettingsError, match="OTEL_BSP_…: max_export_batch_size must be less"):
        OtelTracer.of_environment("sie")


def test_a_wrong_value_ends_the_command_with_the_variable_and_the_remedy() -> None:
    variables = {**os.environ, "SIE_TRACING_ENABLED": "true", "OTEL_TRACES_EXPORTER": "jaeger"}
    code = "from sie_core.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--port", "0"], env=variables, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "OTEL_TRACES_EXPORTER='jaeger' is not allowed: it is `otlp`, `console` or `none`" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_exported_with_none() -> None:
    assert OtelTracer.of_environment("sie", {"OTEL_TRACES_EXPORTER": "none"}) is None
    assert OtelTracer.of_environment("sie", {"OTEL_SDK_DISABLED": "true"}) is None
    assert make_tracer(Settings()) is None


def test_nothing_of_opentelemetry_is_imported_without_tracing() -> None:
    code = (
        "import sys, sie_core.server.run, sie_core.tracing as t; from sie_core.settings import Settings;"
        "t.make_tracer(Settings()); sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_what_lacks_is_named_where_it_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from sie_core.tracing import make_tracer; from sie_core.settings import Settings\n"
        "make_tracer(Settings(tracing_enabled=True))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'sie-core[tracing]'" in done.stderr
