"""The Python client of SIE: three calls, `encode`, `score`, `extract`, and what goes with them.

Importing a leaf (`sie_sdk.wire`, `sie_sdk.errors`) loads msgpack and NumPy at most: the clients come on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sie_sdk.async_client import SIEAsyncClient
    from sie_sdk.client import SIEClient
    from sie_sdk.embeddings import dense_embedding, multivector_embedding, sparse_embedding, sparse_embedding_dict
    from sie_sdk.errors import (
        IncompleteBatchError,
        InputTooLongError,
        LoraLoadingError,
        ModelLoadFailedError,
        ModelLoadingError,
        PoolError,
        ProvisioningError,
        RateLimitError,
        RequestError,
        ResourceExhaustedError,
        ServerError,
        SIEConnectionError,
        SIEError,
    )
    from sie_sdk.many import EncodeMany, ExtractMany, FailedItem, RankedQuery, ScoreMany
    from sie_sdk.types import Item

__version__ = "1.0.0"

__all__ = [
    "EncodeMany",
    "ExtractMany",
    "FailedItem",
    "IncompleteBatchError",
    "InputTooLongError",
    "Item",
    "LoraLoadingError",
    "ModelLoadFailedError",
    "ModelLoadingError",
    "PoolError",
    "ProvisioningError",
    "RankedQuery",
    "RateLimitError",
    "RequestError",
    "ResourceExhaustedError",
    "SIEAsyncClient",
    "SIEClient",
    "SIEConnectionError",
    "SIEError",
    "ScoreMany",
    "ServerError",
    "__version__",
    "dense_embedding",
    "multivector_embedding",
    "sparse_embedding",
    "sparse_embedding_dict",
]

_HOMES = {
    "EncodeMany": "sie_sdk.many",
    "ExtractMany": "sie_sdk.many",
    "FailedItem": "sie_sdk.many",
    "Item": "sie_sdk.types",
    "RankedQuery": "sie_sdk.many",
    "SIEAsyncClient": "sie_sdk.async_client",
    "SIEClient": "sie_sdk.client",
    "ScoreMany": "sie_sdk.many",
    "dense_embedding": "sie_sdk.embeddings",
    "multivector_embedding": "sie_sdk.embeddings",
    "sparse_embedding": "sie_sdk.embeddings",
    "sparse_embedding_dict": "sie_sdk.embeddings",
}


def __getattr__(name: str) -> object:
    """Import an exported name on its first use; exceptions live in `sie_sdk.errors`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "sie_sdk.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
