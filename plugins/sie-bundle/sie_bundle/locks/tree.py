"""A lock as a tree: what needs what, and what each part weighs."""

from __future__ import annotations

from collections.abc import Iterator

from sie_bundle.locks.changes import megabytes
from sie_bundle.locks.lock import Lock, LockedPackage


def draw_tree(lock: Lock) -> Iterator[str]:
    """Write a line a package below one that needs it, the largest first; each is written once.

    What nothing else needs stands at the left, and so does one of a ring of packages that only they need.
    """
    packages = {each.name: each for each in lock.packages}
    needed = {name for each in lock.packages for name in each.needs}
    drawn: set[str] = set()
    first = sorted(packages.values(), key=lambda each: (each.name in needed, each.name))
    for package in first:
        if package.name not in needed or package.name not in drawn:
            yield from _branch(package, packages, drawn, 0)


def _branch(package: LockedPackage, packages: dict[str, LockedPackage], drawn: set[str], depth: int) -> Iterator[str]:
    if package.name in drawn:
        return
    drawn.add(package.name)
    yield f"{'  ' * depth}{package.name} {package.version} ({megabytes(package.wheel.size)})"
    below = [packages[name] for name in package.needs if name in packages]
    for each in sorted(below, key=lambda each: (-each.wheel.size, each.name)):
        yield from _branch(each, packages, drawn, depth + 1)
