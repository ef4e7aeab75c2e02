"""The HTTP routes, written once over `InferenceBackend`; this package knows no engine and no queue."""

from sie_core.api.app import create_app
from sie_core.api.http.gate import Gate

__all__ = ["Gate", "create_app"]
