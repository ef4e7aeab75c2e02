"""The plugin `cluster`: the settings of its programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sie_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from sie_cluster.settings import ClusterSettings

INTERFACES = ("sie.queue/1", "sie.settings-model/1")


@hookimpl
def sie_settings_models() -> list[type[ClusterSettings]]:
    """Register the settings of gateways, workers and config services."""
    from sie_cluster.settings import ClusterSettings

    return [ClusterSettings]
