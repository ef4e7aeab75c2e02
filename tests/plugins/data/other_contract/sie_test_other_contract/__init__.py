"""A plugin built for contracts that this core does not have; its hooks are not looked at."""

from sie_core.hookspecs import hookimpl

CONTRACT_VERSION = 2


@hookimpl
def sie_hook_of_version_two(context):
    return []
