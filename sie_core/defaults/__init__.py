"""The plugins that come with the core: ordinary plugin modules without an entry point.

Imported by the composition root alone; nothing in the core branches on their names.
"""

from types import ModuleType

from sie_core.defaults import batch_policy, cpu_device, output_dtypes

BUILTINS: tuple[ModuleType, ...] = (batch_policy, cpu_device, output_dtypes)
"""Every built-in plugin, in the order they are asked."""
