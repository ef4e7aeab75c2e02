"""What every command of `sie models` looks at: settings, plugins, the catalog and the chain of weight tiers."""

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
    """What the commands look at."""

    settings: Settings
    plugins: PluginSet
    catalog: Catalog
    chain: WeightChain

    def resolve(self, model_id: str) -> ResolvedModel:
        """Find a model by its id.

        Raises:
            ClickException: There is none; names the nearest.
        """
        try:
            return self.catalog.resolve(model_id)
        except InferenceError as error:
            raise click.ClickException(error.message.replace("GET /v1/models", "`sie models`")) from None

    def tell_problems(self) -> None:
        """Say on stderr which plugins are broken or fail."""
        tell_problems(self.plugins)


def gather() -> Parts:
    """Read the settings and build what they say.

    Raises:
        BadSettings: They cannot be used.
    """
    settings = read_settings()
    # The output tells what is wrong with a plugin or a config; the log need not tell it again.
    configure_logging("CRITICAL", as_json=settings.log_json)
    plugins = find_plugins(settings)
    try:
        with stdout_to_stderr():
            return Parts(settings, plugins, build_catalog(settings, plugins), build_chain(settings, plugins))
    except (SettingsError, PluginError) as error:
        raise BadSettings(str(error)) from None
