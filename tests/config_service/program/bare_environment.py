"""An environment as `pip install` of the core and `pip install --no-deps` of every plugin leave it."""

from __future__ import annotations

import importlib.metadata
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def make_bare_environment(folder: Path) -> Path:
    """Make the environment; return its interpreter. What it holds is linked to where this environment has it."""
    venv.create(folder, symlinks=True)
    bare = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    points = [*importlib.metadata.entry_points(group="sie"), *importlib.metadata.entry_points(group="sie.commands")]
    plugins = {str(each.dist.name) for each in points if each.dist is not None}
    for name in sorted(with_dependencies("sie-core") | {canonicalize_name(each) for each in plugins}):
        _link(importlib.metadata.distribution(name), bare)
    return folder / "bin" / "python"


def with_dependencies(name: str) -> set[str]:
    """Name a distribution and all that it needs, however far down."""
    found: set[str] = set()
    left = [name]
    while left:
        each = canonicalize_name(left.pop())
        if each not in found:
            found.add(each)
            left += _needed(importlib.metadata.requires(each) or ())
    return found


def _needed(requirements: Iterable[str]) -> list[str]:
    parsed = map(Requirement, requirements)
    return [each.name for each in parsed if each.marker is None or each.marker.evaluate({"extra": ""})]


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Link what a distribution has in its `site-packages`; of an editable one that is the path of its sources."""
    installed = Path(str(distribution.locate_file("")))
    for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        target = site / top
        if not target.exists():
            target.symlink_to(installed / top)
