"""What the families are held against by `sie verify`; naming them imports no library."""

from __future__ import annotations

from sie_core.contracts import Reference

_LIBRARY = ("sentence-transformers>=6.2,<7",)

REFERENCES = (
    Reference(
        name="sentence-transformers",
        families=frozenset({"pytorch", "sentence-transformers"}),
        target="sie_pytorch.references.vectors:Vectors",
        gives=frozenset({"dense", "sparse", "multivector"}),
        requires=_LIBRARY,
    ),
    Reference(
        name="bge-m3-paper",
        families=frozenset({"pytorch"}),
        target="sie_pytorch.references.bge_m3:TokenLayers",
        gives=frozenset({"sparse", "multivector"}),
        requires=_LIBRARY,
    ),
    Reference(
        name="cross-encoder",
        families=frozenset({"pytorch-pairs"}),
        target="sie_pytorch.references.pairs:Pairs",
        gives=frozenset({"score", "classifications"}),
        requires=_LIBRARY,
    ),
    Reference(
        name="transformers",
        families=frozenset({"pytorch-vision"}),
        target="sie_pytorch.references.pictures:Pictures",
        gives=frozenset({"dense"}),
        requires=(*_LIBRARY, "transformers>=5.23,<6"),
    ),
)
