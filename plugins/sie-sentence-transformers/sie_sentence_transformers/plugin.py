"""The plugin `sentence-transformers`: the family that it serves itself, and the references of `sie verify`.

It imports no model library.
"""

from __future__ import annotations

from dataclasses import replace

from sie_text.options import AUTO_MAP, LENGTH, NORMALIZE, PROMPT_OPTIONS, SIMILARITY
from sie_text.recipe import of_found_weights

from sie_core.contracts import ModelFamily, Reference
from sie_core.hookspecs import hookimpl
from sie_sentence_transformers.fallback.claims import claim_fallback
from sie_sentence_transformers.references.specs import REFERENCES

INTERFACES = ("sie.family/1", "sie.reference/1")

OPTIONS = (NORMALIZE, *PROMPT_OPTIONS, replace(LENGTH, stage="run"), SIMILARITY, AUTO_MAP)
"""A length is an argument of the library's `encode`, so it keeps requests apart."""


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the fallback."""
    return [
        ModelFamily(
            "sentence-transformers",
            "sie_sentence_transformers.fallback.adapter:load",
            of_found_weights(claim_fallback),
            devices=frozenset({"cpu", "cuda", "mps"}),
            options=OPTIONS,
            preview="sie_sentence_transformers.fallback.claims:preview_fallback",
        )
    ]


@hookimpl
def sie_references() -> list[Reference]:
    """Register the references of the families."""
    return list(REFERENCES)
