"""Any set of the distributions installs by one `pip install`: nothing they need contradicts anything else they need."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECTS = [
    ROOT,
    *sorted(file.parent for file in ROOT.glob("sdk/*/pyproject.toml")),
    *sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml")),
]
SERVING = ("sie-core", "sie-sdk", "sie-pytorch", "sie-cpu", "sie-flash", "sie-gliner", "sie-text", "sie-objectstore")
LEFT_OUT = {"gliner", "sentence-transformers", "scipy", "scikit-learn"}
"""What a reference or the fallback needs, and nothing that serves."""


def name_of(project: Path) -> str:
    name: str = tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"]
    return name


def needs(name: str, seen: set[str]) -> Iterator[tuple[str, Requirement]]:
    """List what an installed distribution needs, and what that needs in turn."""
    if canonicalize_name(name) in seen:
        return
    seen.add(canonicalize_name(name))
    for line in metadata.requires(name) or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield name, needed
            yield from needs(needed.name, seen)


def test_what_the_distributions_need_is_here_in_versions_that_agree() -> None:
    seen: set[str] = set()
    found = [each for project in PROJECTS for each in needs(name_of(project), seen)]
    wrong = [
        f"{name} needs {needed}, and {metadata.version(needed.name)} is here"
        for name, needed in found
        if not needed.specifier.contains(metadata.version(needed.name), prereleases=True)
    ]
    assert len(found) > len(PROJECTS)
    assert wrong == []


def test_what_serves_needs_no_library_of_references() -> None:
    seen: set[str] = set()
    needed = {canonicalize_name(each.name) for name in SERVING for _, each in needs(name, seen)}
    assert "torch" in needed
    assert needed.isdisjoint(LEFT_OUT)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of every distribution; that of sie-cpu without kernels, which pip does not look at."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "bundles", sources / "bundles")
    copies = []
    for project in PROJECTS:
        copy = sources / ("core" if project == ROOT else project.relative_to(ROOT))
        left_out = [".*", "*.so", "docs", "tests", *(("plugins", "sdk") if project == ROOT else ())]
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns(*left_out))
        copies.append(copy)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, *copies]
    subprocess.run(command, check=True, env={**os.environ, "CXX": "no-compiler"}, timeout=300)
    return folder


@pytest.fixture(scope="module")
def registry() -> None:
    """Skip where no registry answers; a set of wheels that does not resolve is told by pip in the same words."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "packaging",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"no registry answers here: {done.stderr.strip()}")


def resolve(wheels: Path, report: Path, *names: str) -> dict[str, str]:
    """Have pip say what it would install into an empty environment: where each distribution comes from, by its name.

    torch is the release that is here: which is the newest has no say in whether the distributions agree.
    """
    constraints = report.with_suffix(".txt")
    constraints.write_text(f"torch=={Version(metadata.version('torch')).public}\n")
    options = ["-q", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--find-links", wheels]
    command = [sys.executable, "-m", "pip", "install", *options, "-c", constraints, "--report", report, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    assert (done.returncode, errors) == (0, [])
    found = json.loads(report.read_text())["install"]
    return {canonicalize_name(each["metadata"]["name"]): each["download_info"]["url"] for each in found}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_of_sie_bundle_holds_the_bundles(wheels: Path) -> None:
    (wheel,) = wheels.glob("sie_bundle-*.whl")
    with ZipFile(wheel) as files:
        held = {name: files.read(name) for name in files.namelist() if name.endswith("bundle.yaml")}
    shipped = {file.relative_to(ROOT / "bundles"): file.read_bytes() for file in ROOT.glob("bundles/*/*.yaml")}
    assert held == {f"sie_bundle/shipped/{name}": content for name, content in shipped.items()}
    assert held


@pytest.mark.slow
def test_a_source_distribution_of_sie_bundle_builds_the_wheel_that_the_repository_builds(
    wheels: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", tmp_path, "-t"]
    subprocess.run([*command, "sdist"], cwd=ROOT / "plugins/sie-bundle", check=True, timeout=250)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    subprocess.run([*command, "wheel"], cwd=source, check=True, timeout=250)
    contents = []
    for wheel in (*wheels.glob("sie_bundle-*.whl"), *tmp_path.glob("*.whl")):
        with ZipFile(wheel) as files:
            contents.append({each.filename: each.CRC for each in files.infolist()})
    assert contents[0] == contents[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("registry")
def test_pip_resolves_the_wheels_together(wheels: Path, tmp_path: Path) -> None:
    names = set(map(name_of, PROJECTS))
    found = resolve(wheels, tmp_path / "report.json", *names)
    assert found.keys() >= names
    ours = {name: url for name, url in found.items() if name.startswith("sie-")}
    assert all(url.startswith(wheels.as_uri()) for url in ours.values()), ours
    assert "gliner" not in found
