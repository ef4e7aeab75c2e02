"""Reads a backup that an operator names: the file of a store, or an export."""

from __future__ import annotations

from pathlib import Path

import orjson
from pydantic import ValidationError

from sie_cluster.config_service.store.records import Backup, Entry, StoreDamaged, StoredModel, Write
from sie_cluster.messages.export import read_export
from sie_core.catalog import ConfigError
from sie_core.catalog.configs.reading import describe_problems


def read_file(file: Path) -> Backup:
    """Read it.

    Raises:
        StoreDamaged: It is neither.
    """
    text = file.read_bytes()
    try:
        found = orjson.loads(text)
        if not isinstance(found, dict) or "snapshot_version" not in found:
            return Backup.model_validate(found)
        export = read_export(text)
    except (orjson.JSONDecodeError, ConfigError, ValidationError) as error:
        why = "; ".join(describe_problems(error)[:3]) if isinstance(error, ValidationError) else str(error)
        raise StoreDamaged(f"{file} is neither a backup nor an export: {why[:300]}") from None
    entries = [
        Entry(
            epoch=each.epoch,
            write=Write(
                id=f"exported at {export.epoch}",
                model_id=each.id,
                model=StoredModel(text=each.text, content=dict(each.content)),
            ),
        )
        for each in export.models
        if each.source == "api"
    ]
    return Backup(epoch=export.epoch, entries=entries)
