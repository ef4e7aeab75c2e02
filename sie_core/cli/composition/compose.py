"""The start of every command: reads the settings in force and loads the plugins they allow.

This is the only place that names the built-in plugins.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar, overload

import click

if TYPE_CHECKING:
    from sie_core.plugins import PluginSet
    from sie_core.serving.announcement import Announcement
    from sie_core.settings import Settings

S = TypeVar("S", bound="Settings")

log = logging.getLogger(__name__)

LEVELS = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)


class BadSettings(click.ClickException):
    """A setting or the set of plugins cannot be used; the process exits with 2."""

    exit_code = 2


@overload
def read_settings(**arguments: Any) -> Settings: ...
@overload
def read_settings(model: type[S] | None, /, **arguments: Any) -> S: ...
def read_settings(model: type[Any] | None = None, /, **arguments: Any) -> Any:
    """Read the settings of a model, by default the core's, with `arguments` that are not None on top.

    Raises:
        BadSettings: A value is not allowed; names the variable or option, the value and the allowed ones.
    """
    from sie_core.settings import Settings, SettingsError, load_settings

    try:
        return load_settings(model or Settings, **arguments)
    except SettingsError as error:
        raise BadSettings(str(error)) from None


def warn_of_unknown_variables(model: type[Settings], plugins: PluginSet) -> None:
    """Log every `SIE_*` variable that means nothing here, neither to the command's `model` nor to a plugin."""
    from sie_core.settings import unknown_variables

    of_plugins = (setting.variable for setting in plugins.settings)
    for warning in unknown_variables(of_plugins, models=(model, *plugins.settings_models)):
        log.warning("%s", warning)


def find_plugins(settings: Settings) -> PluginSet:
    """Discover the installed plugins and the built-in ones.

    Raises:
        BadSettings: The plugins cannot be used together, a strict start met a broken one, or a plugin's own variable
            has a value that is not allowed.
    """
    from sie_core.contracts import PluginError
    from sie_core.defaults import BUILTINS
    from sie_core.plugins import discover

    try:
        plugins = discover(settings, BUILTINS)
    except PluginError as error:
        raise BadSettings(str(error)) from None
    for setting in plugins.settings:
        try:
            setting.value()
        except ValueError as error:
            raise BadSettings(str(error)) from None
    # What is in force already is checked, or was overruled by an option of the command.
    known = {name: getattr(settings, name) for name in settings.model_fields_set}
    for model in plugins.settings_models:
        if not isinstance(settings, model):
            read_settings(model, **known)
    return plugins


def tell_problems(plugins: PluginSet) -> None:
    """Report on stderr which plugins are broken, or fail, and why."""
    if problems := plugins.problems():
        click.echo(f"Broken plugins, see `sie plugins`: {problems}", err=True)


def announce(told: Announcement, *, as_json: bool) -> None:
    """Announce on stdout that a program is ready to serve; in the log if every line is JSON, or stdout cannot be
    written to.
    """
    if as_json:
        log.info("%s", told.headline, extra={"facts": told.facts()})
        return
    try:
        click.echo(told.text())
    except OSError as error:
        log.warning("%s; stdout cannot be written to (%s)", told.headline, error.strerror)
        # Text buffered for this line would be written again at exit, and fail the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
