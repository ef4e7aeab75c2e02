"""A family whose class is named by the field that `load` replaced, with an option, all by position."""

from sie_core.contracts import ModelFamily, Option
from sie_core.hookspecs import hookimpl

CONTRACT_VERSION = 1


@hookimpl
def sie_model_families():
    options = (Option("scale", "finish", float, "Multiplies every count."),)
    return [ModelFamily("old-keyword", adapter="m:Class", claims=lambda card: None, options=options)]
