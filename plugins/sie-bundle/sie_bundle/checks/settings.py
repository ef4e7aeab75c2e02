"""Settings of a bundle: known, of allowed values, and no secrets, which an image would show to everybody."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from sie_bundle.bundles.reading import BundleFile
from sie_bundle.bundles.schema import variable_text
from sie_bundle.checks.findings import Finding
from sie_core.catalog import did_you_mean, short
from sie_core.contracts import PluginSetting
from sie_core.plugins import PluginSet
from sie_core.settings import PREFIX, Settings, variables_of


def check_settings(file: BundleFile, found: PluginSet) -> Iterator[Finding]:
    """Check what a bundle's images set, by the settings of the core and of its plugins."""
    plugins = {setting.variable: setting for setting in found.settings}
    every: tuple[type[Settings], ...] = (*found.settings_models, Settings)
    models = {name: model for model in every for name in variables_of(model)}
    for name, value in file.whole.settings.items():
        where, text = file.at("settings", name), variable_text(value)
        if name in plugins:
            yield from _of_plugin(plugins[name], name, text, where)
        elif name not in models:
            hint = did_you_mean(name, models.keys() | plugins.keys())
            yield Finding(
                where, f"{name} is no setting of SIE or of a plugin of the bundle.{hint} Correct it or leave it out"
            )
        elif (problem := _problem(models[name], name, text)) is not None:
            yield Finding(where, problem)


def _of_plugin(setting: PluginSetting, name: str, text: str, where: str) -> Iterator[Finding]:
    if setting.allowed and text not in setting.allowed:
        yield Finding(where, f"{name}={short(text)}: one of {', '.join(setting.allowed)} is allowed")


def _problem(model: type[Settings], name: str, text: str) -> str | None:
    field = name.removeprefix(PREFIX).lower()
    if "Secret" in str(model.model_fields[field].annotation):
        return f"{name} is a secret, and everybody with the image could read it: set it when the image is started"
    try:
        model.model_validate({field: text})
    except ValidationError as error:
        about = model.model_fields[field].description or ""
        for problem in error.errors(include_url=False):
            if problem["loc"][:1] == (field,):
                return f"{name}={short(text)}: {problem['msg']}. {about}".rstrip()
    return None
