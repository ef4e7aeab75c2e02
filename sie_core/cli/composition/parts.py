"""The parts that the commands of `sie models` read: settings, plugins, the catalog and the chain of weight tiers."""

from __future__ import annotations

from typing import NamedTuple

import click

from sie_core.cache import WeightChain, build_chain
from sie_core.catalog import Catalog, build_catalog
from sie_core.cli.composition.compose import BadSettings, find_plugins, read_settings, tell_problems
from sie_core.contracts import InferenceError, PluginError, ResolvedModel
from sie_core.logs import configure_logging
from sie_core.plugins import PluginSet
from sie_core.plugins.output import stdout_to_stderr
from sie_core.settings import Settings, SettingsError


class Parts(NamedTuple):
    """The parts that the commands read."""

    settings: Settings
    plugins: PluginSet
    catalog: Catalog
    chain: WeightChain

    def resolve(self, model_id: str) -> ResolvedModel:
        """Find a model by its id.

        Raises:
            ClickException: It does not exist; the message names the nearest.
        """
        try:
            return self.catalog.resolve(model_id)
        except InferenceError as error:
            raise click.ClickException(error.message.replace("GET /v1/models", "`sie models`")) from None

    def tell_problems(self) -> None:
        """Report on stderr which plugins are broken or fail."""
        tell_problems(self.plugins)


def gather() -> Parts:
    """Read the settings and build the parts.

    Raises:
        BadSettings: They cannot be used.
    """
    settings = read_settings()
    # The output reports faults of plugins and configs, so the log does not repeat them.
    configure_logging("CRITICAL", as_json=settings.log_json)
    plugins = find_plugins(settings)
    try:
        with stdout_to_stderr():
            return Parts(settings, plugins, build_catalog(settings, plugins), build_chain(settings, plugins))
    except (SettingsError, PluginError) as error:
        raise BadSettings(str(error)) from None
