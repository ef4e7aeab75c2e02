"""The standalone server: `serve` runs engine and API in one process. It knows no plugin by name."""

from sie_core.server.listening import ListenError
from sie_core.server.run import serve

__all__ = ["ListenError", "serve"]
