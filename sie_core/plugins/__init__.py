"""Discovery of plugins into a `PluginSet`: a value, passed to whoever needs it, with a report for each plugin.

Importing this loads no plugin; discovering loads no model library. Which plugins there are is nobody's knowledge here.
"""

from sie_core.plugins.discovery import ENTRY_POINT_GROUP, discover
from sie_core.plugins.model import PluginReport, PluginSet, PluginState

__all__ = ["ENTRY_POINT_GROUP", "PluginReport", "PluginSet", "PluginState", "discover"]
