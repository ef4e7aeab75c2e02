"""A plugin written for a version of an interface that this core does not have; its hook is not called."""

from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.family/2",)


@hookimpl
def sie_model_families():
    raise AssertionError("a core of another version called it")
