"""Traces for OpenTelemetry, which is imported only where `SIE_TRACING_ENABLED` is set."""

from __future__ import annotations

from sie_core.contracts import Tracer
from sie_core.settings import Settings, SettingsError

__all__ = ["make_tracer"]


def make_tracer(settings: Settings, service: str = "sie-server") -> Tracer | None:
    """Make what records traces; None where it is off. `OTEL_SERVICE_NAME` wins over `service`.

    Raises:
        SettingsError: OpenTelemetry is not installed, or an `OTEL_…` variable has a value that is not allowed.
    """
    if not settings.tracing_enabled:
        return None
    try:
        from sie_core.tracing.otel import OtelTracer
    except ImportError as error:
        raise SettingsError(
            f"SIE_TRACING_ENABLED=true needs OpenTelemetry, which cannot be imported ({error}): "
            "`pip install 'sie-core[tracing]'`, or unset the variable."
        ) from None
    return OtelTracer.of_environment(service)
