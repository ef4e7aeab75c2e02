"""Brings the paths that clients are known to make to those of the routes.

A client joins a base address and a path, and either may have the `/v1` or the slash already. Whoever looks at a path,
above all to decide who may call, does so after this.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Scope

_SLASHES: Final = re.compile(r"/{2,}")
_BEFORE_VERSION: Final = re.compile(r"/(?:(?:api|openai|v[12])/)+(?=v[12]/)")
"""What may stand before the version of the API: `/v1/v1/…`, `/api/v1/…`, Azure's `/openai/v1/…`."""
_DEPLOYMENT: Final = re.compile(r"/openai/deployments/(.+)/embeddings")
_AZURE: Final = "/openai/"
DEPLOYMENT: Final = "sie.deployment"
"""The key of a request's scope on Azure's paths: their deployment is the model, whatever the body says."""


def canonical_path(path: str) -> str:
    """Return the path that a client meant by `path`, which is percent-decoded; any other is returned as it is."""
    path = without_last_slash(_SLASHES.sub("/", path))
    if deployment := _DEPLOYMENT.fullmatch(path):
        return f"/tei/{deployment[1]}/v1/embeddings"  # the route of OpenAI's embeddings whose path names the model
    before = _BEFORE_VERSION.match(path)
    return path[before.end() - 1 :] if before else path


def without_last_slash(path: str) -> str:
    """Return `path` without the slashes at its end; a slash alone stays."""
    return path.rstrip("/") or "/"


def canonicalise(scope: Scope) -> bool:
    """Put the canonical path of a request into its scope; return whether it is another one.

    Azure's clients send their token as `api-key`, which is read as `Authorization` on Azure's paths.
    """
    given: str = scope["path"]
    path = canonical_path(given)
    if path == given:
        return False
    scope["path"] = path
    if _SLASHES.sub("/", given).startswith(_AZURE):
        scope["headers"] = _with_authorization(scope["headers"])
        scope[DEPLOYMENT] = True
    return True


def _with_authorization(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    if any(name == b"authorization" for name, _ in headers):
        return headers
    return [*headers, *((b"authorization", b"Bearer " + key) for name, key in headers if name == b"api-key")]
