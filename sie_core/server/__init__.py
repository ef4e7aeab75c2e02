"""The standalone server: `serve` runs engine and API in one process."""

from sie_core.server.run import serve
from sie_core.serving.draining import end_process
from sie_core.serving.listening import ListenError

__all__ = ["ListenError", "end_process", "serve"]
