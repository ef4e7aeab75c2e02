"""The plugin `words`: a text's vector is the sum of its words' vectors, which lie in `words.npy`."""

from sie_text.options import LENGTH, NORMALIZE, PROMPT_OPTIONS

from sie_core.contracts import ModelFamily, claim_architectures
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.family/1",)


@hookimpl
def sie_model_families():
    claims, load = claim_architectures("WordTable"), "sie_test_outside_static.encoder:load"
    options = (*PROMPT_OPTIONS, LENGTH, NORMALIZE)
    return [ModelFamily("words", load, claims, options=options, weights=("*.npy",))]
