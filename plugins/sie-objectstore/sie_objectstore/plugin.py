"""Registers one object store per URL scheme. obstore is imported with the first store, not here."""

from __future__ import annotations

from sie_core.contracts import ObjectStore, ObjectStoreFactory
from sie_core.hookspecs import hookimpl

__all__ = ["INTERFACES", "sie_object_stores"]

INTERFACES = ("sie.store/1",)

SCHEMES = ("s3", "gs", "az")


@hookimpl
def sie_object_stores() -> list[ObjectStoreFactory]:
    """Register them."""
    return [ObjectStoreFactory(scheme, _create) for scheme in SCHEMES]


def _create(url: str) -> ObjectStore:
    from sie_objectstore.store import BucketStore

    return BucketStore(url)
