"""What differs between two locks, a line a package."""

from __future__ import annotations

from sie_bundle.locks.lock import Lock, LockedPackage


def describe_changes(old: Lock, new: Lock) -> list[str]:
    """Write a line for each package that came, went or changed, and one for the sum of their sizes."""
    before, after = ({each.name: each for each in lock.packages} for lock in (old, new))
    lines = [
        _line(before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if lines:
        lines.append(f"in all {megabytes(old.size)} -> {megabytes(new.size)} ({_signed(new.size - old.size)})")
    return lines


def megabytes(size: int) -> str:
    """Write bytes as millions."""
    return f"{size / 1e6:.1f} MB"


def _line(old: LockedPackage | None, new: LockedPackage | None) -> str:
    if old is None:
        assert new is not None
        return f"+ {new.name} {new.version} ({megabytes(new.wheel.size)})"
    if new is None:
        return f"- {old.name} {old.version} ({megabytes(old.wheel.size)})"
    if old.version != new.version:
        return f"~ {new.name} {old.version} -> {new.version} ({_signed(new.wheel.size - old.wheel.size)})"
    if old.wheel == new.wheel:
        return f"~ {new.name} {new.version}: needs {', '.join(new.needs) or 'nothing'} now"
    return f"~ {new.name} {new.version}: another wheel ({new.wheel.file}, {_signed(new.wheel.size - old.wheel.size)})"


def _signed(size: int) -> str:
    return f"{size / 1e6:+.1f} MB"
