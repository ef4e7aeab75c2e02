"""The plugins that come with the core: ordinary plugin modules without an entry point.

Only the composition root imports them, and the core never branches on their names. `SIE_PLUGINS_BLOCKED` removes one by
its module's name, so that another plugin can register the same thing.
"""

from types import ModuleType

from sie_core.defaults import (
    cluster_tier,
    cpu_device,
    hub_tier,
    local_tier,
    memory_manager,
    output_dtypes,
    packages_tier,
    postprocessors,
    scheduler,
)

BUILTINS: tuple[ModuleType, ...] = (
    scheduler,
    memory_manager,
    cpu_device,
    local_tier,
    packages_tier,
    cluster_tier,
    hub_tier,
    postprocessors,
    output_dtypes,
)
"""Every built-in plugin, in the order of registration."""
