"""The standalone server: `serve` runs engine and API in one process."""

from sie_core.server.run import serve
from sie_core.serving.draining import end_process

__all__ = ["end_process", "serve"]
