"""The routes below `/v1/pools`; a server that is no gateway refuses them and says that gateways have pools."""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import decode_body, read_body
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.endpoint import Endpoint
from sie_core.api.pools.schema import PoolBody, describe_pool, pool_name
from sie_core.contracts import InferenceError, PoolLeases

PREFIX: Final = "/v1/pools"
MOST_BODY_BYTES: Final = 1 << 16
"""Bytes of a body that describes a pool."""


async def create(api: Api, request: Request) -> Response:
    """Make a pool, or change one."""
    pools = _changeable(api, request)
    body = decode_body(await read_body(request, MOST_BODY_BYTES, api.gate, api.body_threads), "json", PoolBody)
    return _json(describe_pool(await pools.create(pool_name(body.name), body.spec())), 201)


async def list_pools(api: Api, request: Request) -> Response:
    """List the pools."""
    return _json({"pools": [describe_pool(each) for each in await _pools(api).listed()]})


async def get(api: Api, request: Request) -> Response:
    """Describe a pool."""
    return _json(describe_pool(await _pools(api).get(_name(request))))


async def renew(api: Api, request: Request) -> Response:
    """Begin a lease anew."""
    return _json(describe_pool(await _changeable(api, request).renew(_name(request))))


async def delete(api: Api, request: Request) -> Response:
    """End a pool."""
    await _changeable(api, request).delete(_name(request))
    return _json({"name": _name(request), "deleted": True})


async def refuse(api: Api, request: Request) -> Response:
    """Refuse, and say that gateways have pools."""
    raise InferenceError(
        "NOT_FOUND",
        f"This server has no resource pools: a cluster's gateway leases its workers (`sie gateway`); send "
        f"{request.method} {request.url.path[:200]} there.",
    )


ENDPOINTS: Final = (
    Endpoint(PREFIX, create, methods=("POST",)),
    Endpoint(PREFIX, list_pools),
    Endpoint(PREFIX + "/{name}", get),
    Endpoint(PREFIX + "/{name}/renew", renew, methods=("POST",)),
    Endpoint(PREFIX + "/{name}", delete, methods=("DELETE",)),
)
NO_POOLS: Final = (
    Endpoint(PREFIX, refuse, methods=("GET", "POST")),
    Endpoint(PREFIX + "/{rest:path}", refuse, methods=("GET", "POST", "DELETE")),
)
"""The routes of a server that has no workers to lease."""


def _pools(api: Api) -> PoolLeases:
    assert api.pools is not None
    return api.pools


def _changeable(api: Api, request: Request) -> PoolLeases:
    """Return the pools for a client that may change them.

    Raises:
        InferenceError: Its token is not an administrator's.
    """
    api.auth.check_admin(request.headers.getlist("authorization"))
    return _pools(api)


def _name(request: Request) -> str:
    return pool_name(request.path_params["name"])


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type=JSON_TYPE)
