"""A plugin that means `sie_model_families`."""

from sie_core.hookspecs import hookimpl

INTERFACES = ()


@hookimpl
def sie_model_familes():
    return []
