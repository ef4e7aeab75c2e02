"""A plugin that expects the hook to hand it the settings."""

from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.family/1",)


@hookimpl
def sie_model_families(settings):
    return []
