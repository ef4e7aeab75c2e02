"""The references of the families for `sie verify`; naming them imports no library."""

from __future__ import annotations

from sie_core.contracts import Reference

_LIBRARY = ("sentence-transformers>=6.2,<7",)
_TRANSFORMERS = ("transformers>=5.23,<6",)

REFERENCES = (
    Reference(
        name="sentence-transformers",
        families=frozenset({"cpu", "pytorch", "sentence-transformers", "sglang"}),
        target="sie_sentence_transformers.references.vectors:Vectors",
        gives=frozenset({"dense", "sparse", "multivector"}),
        requires=_LIBRARY,
    ),
    Reference(
        name="static-embedding",
        families=frozenset({"static"}),
        target="sie_sentence_transformers.references.static:StaticEmbeddings",
        gives=frozenset({"dense", "sparse"}),
        requires=_LIBRARY,
    ),
    Reference(
        name="model2vec",
        families=frozenset({"static"}),
        target="sie_sentence_transformers.references.static:Model2Vec",
        gives=frozenset({"dense"}),
        requires=(*_LIBRARY, "model2vec>=0.10,<1"),
    ),
    Reference(
        name="bge-m3-paper",
        families=frozenset({"cpu", "pytorch"}),
        target="sie_sentence_transformers.references.bge_m3:TokenLayers",
        gives=frozenset({"sparse", "multivector"}),
        requires=_LIBRARY,
    ),
    Reference(
        name="cross-encoder",
        families=frozenset({"cpu-pairs", "pytorch-pairs", "sglang-pairs"}),
        target="sie_sentence_transformers.references.pairs:Pairs",
        gives=frozenset({"score", "classifications"}),
        requires=_LIBRARY,
    ),
    Reference(
        name="text-classification",
        families=frozenset({"cpu-classify", "pytorch-classify"}),
        target="sie_sentence_transformers.references.labels.classes:Classes",
        gives=frozenset({"classifications"}),
        requires=_TRANSFORMERS,
    ),
    Reference(
        name="token-classification",
        families=frozenset({"cpu-tokens", "pytorch-tokens"}),
        target="sie_sentence_transformers.references.labels.entities:Entities",
        gives=frozenset({"entities"}),
        requires=_TRANSFORMERS,
    ),
    Reference(
        name="transformers",
        families=frozenset({"pytorch-vision"}),
        target="sie_sentence_transformers.references.pictures:Pictures",
        gives=frozenset({"dense"}),
        requires=(*_LIBRARY, *_TRANSFORMERS),
    ),
)
