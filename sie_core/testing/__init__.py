"""The plugin author's kit: conformance checks of all that a distribution registers, and a server for its tests.

Part of the wheel. It sees a plugin through the contracts only, so it serves any family.
"""

from sie_core.testing.conformance import Check, checks_of, conformance
from sie_core.testing.loading import LoadedModel, load_model

__all__ = ["Check", "LoadedModel", "checks_of", "conformance", "load_model"]
