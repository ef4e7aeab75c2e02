"""The engine: model lifecycle, the pipeline of a request, one device thread."""

from sie_core.engine.building import build_engine
from sie_core.engine.engine import Engine
from sie_core.engine.refusing import Refusing

__all__ = ["Engine", "Refusing", "build_engine"]
