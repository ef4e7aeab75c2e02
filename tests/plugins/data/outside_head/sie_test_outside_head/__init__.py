"""The plugin `moods`: encoders with a head of their own, which says the mood of a text."""

from sie_text.options import LENGTH

from sie_core.contracts import ModelFamily, claim_architectures
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.family/1",)


@hookimpl
def sie_model_families():
    claims = claim_architectures("MoodModel", priority=10)
    return [ModelFamily("moods", "sie_test_outside_head.head:load", claims, options=(LENGTH,))]
