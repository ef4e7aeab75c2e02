"""A file that an operator names is a backup or an export, or is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from sie_cluster.config_service.store.reading import read_file
from sie_cluster.config_service.store.records import StoreDamaged, encode

from tests.config_service.conftest import Start, post


def test_a_backup_and_an_export_of_one_state_hold_the_same_models(start: Start, tmp_path: Path) -> None:
    service = start()
    service.create(post("org/a"))
    service.put("org/b", post("org/b", license="x"))
    (tmp_path / "backup").write_bytes(encode(service.state.backup()))
    (tmp_path / "export").write_bytes(service.export())
    backup, export = (read_file(tmp_path / name) for name in ("backup", "export"))
    assert backup.epoch == export.epoch == 2
    held = [{each.write.model_id: each.write.model for each in found.entries} for found in (backup, export)]
    assert held[0] == held[1] == service.state.models


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"snapshot_version": 1}', '{"format": 3, "epoch": 1}'])
def test_any_other_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(StoreDamaged, match=r"other\.json is neither a backup nor an export: ."):
        read_file(file)
