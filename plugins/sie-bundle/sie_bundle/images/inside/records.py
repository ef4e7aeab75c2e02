"""Keeps RECORD, the list of files of each distribution, true after pruning and compiling."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from importlib.util import cache_from_source
from pathlib import Path


def site_packages(layers: Path) -> list[Path]:
    """List the folders of installed distributions of all layers."""
    return sorted(layers.glob("*/opt/*/lib/python3.*/site-packages"))


def update_records(layer: Path) -> None:
    """Have each RECORD of a layer list the files that are there, bytecode included, each with its hash and size."""
    for record in sorted(layer.glob("opt/*/lib/python3.*/site-packages/*.dist-info/RECORD")):
        record.write_text(_listing(record), encoding="utf-8")


def _listing(record: Path) -> str:
    site, own = record.parent.parent, record.relative_to(record.parent.parent).as_posix()
    names = [row[0] for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"))) if row]
    compiled = [cache_from_source(name) for name in names if name.endswith(".py")]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for name in sorted({*names, *compiled} - {own}):
        file = site / name
        if file.is_file():
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
            writer.writerow([name, f"sha256={digest}", file.stat().st_size])
    writer.writerow([own, "", ""])
    return lines.getvalue()
