"""What every command starts with: the settings in force and the plugins they allow.

This is the only place that names the built-in plugins.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sie_core.plugins import PluginSet
    from sie_core.settings import Settings

log = logging.getLogger(__name__)


class BadSettings(click.ClickException):
    """A setting or the set of plugins cannot be used; the process exits with 2."""

    exit_code = 2


def read_settings(**arguments: Any) -> Settings:
    """Read the settings, with `arguments` that are not None on top.

    Raises:
        BadSettings: A value is not allowed; names the variable or option, the value and what is.
    """
    from sie_core.settings import SettingsError, load_settings

    try:
        return load_settings(**arguments)
    except SettingsError as error:
        raise BadSettings(str(error)) from None


def warn_of_unknown_variables() -> None:
    """Log every `SIE_*` variable that means nothing here."""
    from sie_core.settings import unknown_variables

    for warning in unknown_variables():
        log.warning("%s", warning)


def find_plugins(settings: Settings) -> PluginSet:
    """Discover the installed plugins and the built-in ones.

    Raises:
        BadSettings: The plugins cannot be used together, or a strict start met a broken one.
    """
    from sie_core.contracts import PluginError
    from sie_core.defaults import BUILTINS
    from sie_core.plugins import discover

    try:
        return discover(settings, BUILTINS)
    except PluginError as error:
        raise BadSettings(str(error)) from None


def tell_problems(plugins: PluginSet) -> None:
    """Say on stderr which plugins are broken, or fail, and why."""
    if problems := plugins.problems():
        click.echo(f"Broken plugins, see `sie plugins`: {problems}", err=True)
