"""A plugin that means `sie_model_families`."""

from sie_core.hookspecs import hookimpl

CONTRACT_VERSION = 1


@hookimpl
def sie_model_familes():
    return []
