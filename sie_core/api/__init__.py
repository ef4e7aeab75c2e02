"""The HTTP routes, written once over `InferenceBackend`."""

from sie_core.api.app import SOCKETS, create_app
from sie_core.api.http.browsers import Browsers, allowed_hosts
from sie_core.api.http.errors import error_response
from sie_core.api.http.gate import Gate

__all__ = ["SOCKETS", "Browsers", "Gate", "allowed_hosts", "create_app", "error_response"]
