"""Discovery of plugins into a `PluginSet`: a value passed to its users, with a report for each plugin.

Importing this package loads no plugin, and discovery imports no model library.
"""

from sie_core.plugins.discovery import ENTRY_POINT_GROUP, discover
from sie_core.plugins.interfaces.signatures import UnfitObject, require
from sie_core.plugins.interfaces.versions import unserved
from sie_core.plugins.model import PluginReport, PluginSet, PluginState

__all__ = [
    "ENTRY_POINT_GROUP",
    "PluginReport",
    "PluginSet",
    "PluginState",
    "UnfitObject",
    "discover",
    "require",
    "unserved",
]
