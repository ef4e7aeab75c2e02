"""Asks the config service over HTTP, within bounds of time and size.

No proxy of the environment is used, and no redirect is followed: the read token goes to the service alone.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Annotated

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sie_cluster.settings import ClusterSettings

CONNECT_S, EPOCH_S, EXPORT_S = 2.0, 5.0, 60.0
KEPT_S = 60.0
"""How long a connection is kept for the next look, within what the service keeps it."""
MOST_EPOCH_BYTES = 1 << 16
MOST_EXPORT_BYTES = 1 << 28
"""Ten thousand models take about 15 MB."""


class ConfigServiceAway(Exception):
    """The config service gave no answer that can be used; the message says why and holds no token."""


class Epoch(BaseModel):
    """What the config service holds, in three values that are cheap to compare."""

    model_config = ConfigDict(strict=True, frozen=True)

    epoch: Annotated[int, Field(ge=0, lt=2**63)]
    bundles_hash: str = ""
    bundle_config_hashes_hash: str = ""


@dataclass(slots=True)
class ConfigClient:
    """The config service of `SIE_CONFIG_SERVICE_URL`."""

    url: str
    _client: httpx.AsyncClient

    @classmethod
    def of(cls, settings: ClusterSettings) -> ConfigClient:
        """Make a client with the URL and the read token of the settings; connects to nothing."""
        url = (settings.config_service_url or "").rstrip("/")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if settings.config_read_token is not None:
            headers["Authorization"] = f"Bearer {settings.config_read_token.get_secret_value()}"
        client = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(EXPORT_S, connect=CONNECT_S),
            limits=httpx.Limits(keepalive_expiry=KEPT_S),
            # To read the certificates of this machine takes 20 ms of a start; without https nobody asks for them.
            verify=False if url.startswith("http:") else ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
        )
        return cls(url, client)

    async def epoch(self) -> Epoch:
        """Ask for the epoch and the hashes.

        Raises:
            ConfigServiceAway: No answer, or none that can be used.
        """
        body = await self._get("/v1/configs/epoch", EPOCH_S, MOST_EPOCH_BYTES)
        try:
            return Epoch.model_validate_json(body)
        except ValidationError:
            raise ConfigServiceAway(f"{self.url}/v1/configs/epoch answered something else than an epoch") from None

    async def export(self) -> bytes:
        """Fetch the export, as JSON.

        Raises:
            ConfigServiceAway: No answer, or none that can be used.
        """
        return await self._get("/v1/configs/export", EXPORT_S, MOST_EXPORT_BYTES)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    async def _get(self, path: str, limit_s: float, most_bytes: int) -> bytes:
        where = f"{self.url}{path}"
        try:
            async with asyncio.timeout(limit_s), self._client.stream("GET", path) as response:
                if response.status_code != 200:
                    raise ConfigServiceAway(f"{where} answered {response.status_code}{_hint(response.status_code)}")
                body = bytearray()
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > most_bytes:
                        raise ConfigServiceAway(f"{where} answered more than {most_bytes} bytes")
                return bytes(body)
        except TimeoutError:
            raise ConfigServiceAway(f"{where} did not answer within {limit_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ConfigServiceAway(f"{where} cannot be reached: {str(error)[:200] or type(error).__name__}") from None


def _hint(status: int) -> str:
    if status in (401, 403):
        return ": SIE_CONFIG_READ_TOKEN is not one that may read the export there"
    return ": it does not lead" if status == 503 else ""
