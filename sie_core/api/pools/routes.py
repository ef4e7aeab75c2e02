"""The routes below `/v1/pools`; a server that is no gateway refuses them and says that gateways have pools."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import decode_body, read_body
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.pools.schema import PoolBody, describe_pool, pool_name
from sie_core.contracts import InferenceError, PoolLeases

PREFIX: Final = "/v1/pools"
MOST_BODY_BYTES: Final = 1 << 16
"""Bytes of a body that describes a pool."""


def router(api: Api, pools: PoolLeases) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix=PREFIX, tags=["pools"], include_in_schema=False)

    def check_admin(request: Request) -> None:
        api.auth.check_admin(request.headers.getlist("authorization"))

    @routes.post("")
    async def create(request: Request) -> Response:
        """Make a pool, or change one."""
        check_admin(request)
        body = decode_body(await read_body(request, MOST_BODY_BYTES, api.gate, api.body_threads), "json", PoolBody)
        return _json(describe_pool(await pools.create(pool_name(body.name), body.spec())), 201)

    @routes.get("")
    async def list_pools() -> Response:
        """List the pools."""
        return _json({"pools": [describe_pool(each) for each in await pools.listed()]})

    @routes.get("/{name}")
    async def get(name: str) -> Response:
        """Describe a pool."""
        return _json(describe_pool(await pools.get(pool_name(name))))

    @routes.post("/{name}/renew")
    async def renew(request: Request, name: str) -> Response:
        """Begin a lease anew."""
        check_admin(request)
        return _json(describe_pool(await pools.renew(pool_name(name))))

    @routes.delete("/{name}")
    async def delete(request: Request, name: str) -> Response:
        """End a pool."""
        check_admin(request)
        await pools.delete(pool_name(name))
        return _json({"name": pool_name(name), "deleted": True})

    return routes


def no_pools() -> APIRouter:
    """Make the routes of a server that has no workers to lease."""
    routes = APIRouter(prefix=PREFIX, include_in_schema=False)

    @routes.api_route("", methods=["GET", "POST"])
    @routes.api_route("/{rest:path}", methods=["GET", "POST", "DELETE"])
    async def refuse(request: Request) -> Response:
        """Refuse, and say that gateways have pools."""
        raise InferenceError(
            "NOT_FOUND",
            f"This server has no resource pools: a cluster's gateway leases its workers (`sie gateway`); send "
            f"{request.method} {request.url.path[:200]} there.",
        )

    return routes


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type=JSON_TYPE)
