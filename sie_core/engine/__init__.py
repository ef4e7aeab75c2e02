"""The engine: model lifecycle, the pipeline of a request, one device thread."""

from sie_core.engine.building import build_engine
from sie_core.engine.engine import Engine

__all__ = ["Engine", "build_engine"]
