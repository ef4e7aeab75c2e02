"""One of two plugins that claim the family id `clash`, under one entry-point name."""

from sie_core.contracts import ModelFamily
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.family/1",)


@hookimpl
def sie_model_families():
    return [ModelFamily("clash", "sie_test_clash_two:load", lambda card: None)]
