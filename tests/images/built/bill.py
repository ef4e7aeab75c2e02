"""Holds an image's files against its bill of materials, its lock and the records of what is installed."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from pathlib import Path

from sie_bundle.locks.lock import read_lock


def check_bill(files: Path, beside: Path) -> None:
    """Each component is there and each that is there is a component; each file is what RECORD says, and no other is."""
    share = files / "opt/sie/share"
    assert beside.read_bytes() == (share / "sbom.cdx.json").read_bytes()
    bill = {each["purl"] for each in json.loads(beside.read_bytes())["components"]}
    locked = {
        f"pkg:pypi/{each.name}@{each.version.replace('+', '%2B')}"
        for each in read_lock(share / "pylock.cpu.toml").packages
    }
    status = (files / "var/lib/dpkg/status").read_text().split("\n\n")
    debian = {part.split("\n", 1)[0].partition(": ")[2] for part in status if "Status: install ok installed" in part}
    assert {each for each in bill if each.startswith("pkg:pypi/")} == locked
    assert {each.split("/")[2].partition("@")[0] for each in bill if each.startswith("pkg:deb/")} == debian
    site = next(files.glob("opt/sie/lib/python3.*/site-packages"))
    listed = set()
    for record in site.glob("*.dist-info/RECORD"):
        for name, digest, size in csv.reader(record.open(newline="")):
            listed.add((site / name).resolve())
            if digest:
                content = (site / name).read_bytes()
                told = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={told}", str(len(content))), name
    there = {file.resolve() for file in site.rglob("*") if file.is_file()}
    assert there - listed == set()


def leftovers(files: Path) -> list[str]:
    """Name what has no place in an image: caches of pip, compilers, tests of libraries, repositories."""
    wrong = (
        "**/.git",
        "root/.cache",
        "usr/bin/gcc*",
        "usr/bin/c++*",
        "opt/sie/**/pip",
        "opt/sie/**/torch/include",
        "context",
    )
    return [str(each.relative_to(files)) for pattern in wrong for each in files.glob(pattern)]
