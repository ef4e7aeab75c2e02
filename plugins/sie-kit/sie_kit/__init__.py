"""The plugin author's kit: conformance checks of all that a distribution registers, and a server for its tests.

It sees a plugin through the contracts only, so it serves any family. Names are imported when they are first used:
pytest loads this package into every session for its fixtures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sie_kit.checklist import Check, checks_of, conformance, failures
    from sie_kit.loading import LoadedModel, load_model
    from sie_kit.server import Served, serving

__version__ = "1.0.0"
__all__ = ["Check", "LoadedModel", "Served", "checks_of", "conformance", "failures", "load_model", "serving"]

_MODULES = {
    "Check": "checklist",
    "LoadedModel": "loading",
    "Served": "server",
    "checks_of": "checklist",
    "conformance": "checklist",
    "failures": "checklist",
    "load_model": "loading",
    "serving": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
