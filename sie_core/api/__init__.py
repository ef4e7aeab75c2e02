"""The HTTP routes, written once over `InferenceBackend`.

Importing a module of it loads Starlette where that has routes; what is exported here comes on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sie_core.api.app import SOCKETS, create_app
    from sie_core.api.http.browsers import Browsers, allowed_hosts
    from sie_core.api.http.errors import error_response
    from sie_core.api.http.gate import Gate

__all__ = ["SOCKETS", "Browsers", "Gate", "allowed_hosts", "create_app", "error_response"]

_HOMES = {
    "SOCKETS": "sie_core.api.app",
    "create_app": "sie_core.api.app",
    "Browsers": "sie_core.api.http.browsers",
    "allowed_hosts": "sie_core.api.http.browsers",
    "error_response": "sie_core.api.http.errors",
    "Gate": "sie_core.api.http.gate",
}


def __getattr__(name: str) -> object:
    """Import an exported name on its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
