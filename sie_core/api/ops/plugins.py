"""`GET /v1/plugins`: what is installed, what it registers and why one is broken."""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.openapi.descriptions import lookup
from sie_core.api.schema import Schema


class PluginsReply(Schema):
    """Every plugin found, broken and blocked ones too."""

    plugins: list[dict[str, Any]]


async def list_plugins(api: Api, request: Request) -> Response:
    """List every plugin with its state, its cause and what it registers."""
    content = {"plugins": [dict(plugin) for plugin in api.backend.plugins()]}
    return Response(orjson.dumps(content, default=list), media_type=JSON_TYPE)


ENDPOINTS: Final = (lookup("/v1/plugins", list_plugins, PluginsReply, tag="models"),)
