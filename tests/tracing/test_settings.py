"""What the variables of OpenTelemetry may say, and what is imported without tracing."""

from __future__ import annotations

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
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ],
)
def test_a_wrong_value_stops_the_start_and_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as told:
        OtelTracer.of_environment("sie", {variable: value})
    assert variable in str(told.value)
    assert value in str(told.value)


def test_nothing_is_exported_with_none() -> None:
    assert OtelTracer.of_environment("sie", {"OTEL_TRACES_EXPORTER": "none"}) is None
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
