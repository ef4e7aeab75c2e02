"""The standalone server: `serve` runs engine and API in one process. It knows no plugin by name."""

from sie_core.server.run import serve
from sie_core.serving.listening import ListenError
from sie_core.serving.stopping import end_process

__all__ = ["ListenError", "end_process", "serve"]
