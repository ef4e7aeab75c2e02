"""The bill of materials of an image as CycloneDX 1.6: its Python distributions, and the Debian packages of its base."""

from __future__ import annotations

import hashlib
import json
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

STATUS = Path("/var/lib/dpkg/status")
RELEASE = Path("/etc/os-release")


def write_sbom(sites: Sequence[Path], file: Path, plan: dict[str, Any]) -> None:
    """Write the bill of what lies in `sites`, the folders of installed distributions, and of this image's base."""
    hashes = dict(_hashes(file.parent))
    components = [*_distributions(sites, hashes), *_debian()]
    components.sort(key=lambda each: each["bom-ref"])
    content = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(plan["epoch"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "container", "name": plan["name"], "version": plan["version"]},
        },
        "components": components,
    }
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _hashes(folder: Path) -> Iterator[tuple[str, str]]:
    for lock in sorted(folder.glob("pylock.*.toml")):
        for package in tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]:
            yield f"{package['name']}@{package['version']}", package["wheels"][0]["hashes"]["sha256"]


def _distributions(sites: Sequence[Path], hashes: dict[str, str]) -> Iterator[dict[str, Any]]:
    # By environment: one library may be there twice, in two versions.
    for metadata in sorted(each for site in sites for each in site.glob("*.dist-info/METADATA")):
        head = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
        name = str(head["Name"]).lower().replace("_", "-").replace(".", "-")
        environment = metadata.parents[4].name
        package = f"pkg:pypi/{name}@{quote(str(head['Version']))}"
        found: dict[str, Any] = {
            "type": "library",
            "bom-ref": f"{environment}:{package}",
            "name": name,
            "version": str(head["Version"]),
            "purl": package,
        }
        if stated := head["License-Expression"]:
            found["licenses"] = [{"expression": stated}]
        elif (stated := head["License"]) and "\n" not in stated:
            found["licenses"] = [{"license": {"name": stated}}]
        if sha256 := hashes.get(f"{name}@{head['Version']}"):
            found["hashes"] = [{"alg": "SHA-256", "content": sha256}]
        yield found


def _debian() -> Iterator[dict[str, Any]]:
    if not STATUS.is_file():
        return
    distribution = next(
        (line[3:].strip('"\n') for line in RELEASE.open(encoding="utf-8") if line.startswith("ID=")), "debian"
    )
    for paragraph in STATUS.read_text(encoding="utf-8").split("\n\n"):
        head = HeaderParser().parsestr(paragraph)
        if head["Package"] and str(head["Status"]).endswith(" installed"):
            name, version, machine = head["Package"], head["Version"], head["Architecture"]
            package = f"pkg:deb/{distribution}/{name}@{quote(version, safe='')}?arch={machine}"
            yield {"type": "library", "bom-ref": package, "name": name, "version": version, "purl": package}
