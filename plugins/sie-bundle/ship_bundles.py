"""Puts the bundles of the repository into wheels and source distributions of sie-bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = "sie_bundle/shipped"


class Bundles(BuildHookInterface):  # type: ignore[type-arg]
    """Ships `bundles/`; an editable installation reads them where they lie."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folder, where it is not there already as in a source distribution."""
        if version != "editable" and not Path(self.root, SHIPPED).is_dir():
            build_data["force_include"][str(Path(self.root).parents[1] / "bundles")] = SHIPPED
