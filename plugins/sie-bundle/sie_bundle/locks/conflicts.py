"""Tells why versions cannot be solved: who wants what, and the two remedies, in at most five lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_SPEC = r"(?:[<>=!~]=?=?[^\s,]+)(?:,[<>=!~]=?=?[^\s,]+)*"
_DEPENDS = re.compile(
    rf"(?:all versions of )?({_NAME})(?:\[[^]]*\])?({_SPEC})? depends? on ({_NAME})(?:\[[^]]*\])?({_SPEC})"
)
_REQUIRED = re.compile(rf"(?:you require|bundle depends on|and) ({_NAME})(?:\[[^]]*\])?({_SPEC})")
_PROJECT = "bundle"

Want = tuple[str, str]
"""Who, and the range."""


def tell_conflict(where: str, platform: str, written: str) -> str:
    """Write what the solver says as lines for people.

    Args:
        where: The bundle's file and line.
        platform: The platform, with the environment where it is an own one.
        written: The solver's standard error.
    """
    text = " ".join(written.split())
    found = _clashing(_wants(text))
    if found is None:
        return f"{where}: cannot be solved for {platform}:\n{_shortened(written)}"
    package, wants = found
    told = [f"  {who} wants {package} {spec}" for who, spec in wants]
    remedy = (
        f"  Put {package} into `overrides` with a reason, where one side works with the other's, or make two bundles."
    )
    return "\n".join([f"{where}: no versions fulfil it all on {platform}:", *told, remedy])


def _wants(text: str) -> Mapping[str, dict[str, str]]:
    """Collect by package who wants which range of it."""
    wants: dict[str, dict[str, str]] = {}
    for who, version, package, spec in _DEPENDS.findall(text):
        wants.setdefault(canonicalize_name(package), {})[_named(who, version)] = spec.rstrip(".,")
    for package, spec in _REQUIRED.findall(text):
        wants.setdefault(canonicalize_name(package), {}).setdefault("the bundle", spec.rstrip(".,"))
    return wants


def _named(who: str, version: str) -> str:
    if who == _PROJECT:
        return "the bundle"
    exact = re.fullmatch(r"[=><~]=([^,*]+)", version)
    return f"{who} {exact[1]}" if exact else f"{who} {version}".strip()


def _clashing(wants: Mapping[str, dict[str, str]]) -> tuple[str, list[Want]] | None:
    """Find the package of which two want ranges that have nothing in common; the first such one."""
    for package, by in wants.items():
        for one, two in combinations(by.items(), 2):
            if not _meet(one[1], two[1]):
                return package, [one, two]
    return None


def _meet(one: str, two: str) -> bool:
    """Whether some version may be in both ranges: tried with the versions that either names, and their neighbours."""
    try:
        both = SpecifierSet(f"{one},{two}")
    except InvalidSpecifier:
        return True
    return any(both.contains(version, prereleases=True) for version in _tried(one, two))


def _tried(one: str, two: str) -> Iterator[str]:
    for version in re.findall(r"[0-9][0-9a-zA-Z.+!]*", f"{one} {two}"):
        for each in (version, f"{version}.1", f"{version}.post1"):
            try:
                SpecifierSet(f"=={each}")
            except (InvalidSpecifier, InvalidVersion):
                continue
            yield each
    yield from ("0", "999999")


def _shortened(written: str) -> str:
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("error: No solution")] or ["the solver gave no reason"]
    return "\n".join(f"  {line[:300]}" for line in lines[:4])
