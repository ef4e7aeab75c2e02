"""Asks the config service for its epoch and its export."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sie_cluster.programs.asking import Asked, Away
from sie_cluster.settings import ClusterSettings

EPOCH_S, EXPORT_S = 5.0, 60.0
MOST_EPOCH_BYTES = 1 << 16
MOST_EXPORT_BYTES = 1 << 28
"""Ten thousand models take about 15 MB."""


class Epoch(BaseModel):
    """What the config service holds, in three values that are cheap to compare."""

    model_config = ConfigDict(strict=True, frozen=True)

    epoch: Annotated[int, Field(ge=0, lt=2**63)]
    bundles_hash: str = ""
    bundle_config_hashes_hash: str = ""


class ConfigClient(Asked):
    """The config service of `SIE_CONFIG_SERVICE_URL`, asked with the read token of the settings."""

    def __init__(self, settings: ClusterSettings) -> None:
        token = None if settings.config_read_token is None else settings.config_read_token.get_secret_value()
        super().__init__(settings.config_service_url or "", token, "SIE_CONFIG_READ_TOKEN")

    async def epoch(self) -> Epoch:
        """Ask for the epoch and the hashes.

        Raises:
            Away: No answer, or none that can be used.
        """
        body = await self.get("/v1/configs/epoch", EPOCH_S, MOST_EPOCH_BYTES)
        try:
            return Epoch.model_validate_json(body)
        except ValidationError:
            raise Away(f"{self.url}/v1/configs/epoch answered something else than an epoch") from None

    async def export(self) -> bytes:
        """Fetch the export, as JSON.

        Raises:
            Away: No answer, or none that can be used.
        """
        return await self.get("/v1/configs/export", EXPORT_S, MOST_EXPORT_BYTES)
