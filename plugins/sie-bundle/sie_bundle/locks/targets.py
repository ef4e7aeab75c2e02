"""The machine that a lock is for: which wheels install there, and the environment that markers are read in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from packaging import tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

GLIBC = 36
"""The minor version of glibc 2 in the images' base, Debian 12."""
_OLD = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")


@dataclass(frozen=True)
class Target:
    """Linux on x86-64 with a version of CPython."""

    python: str
    """Major and minor, `3.11`."""

    @property
    def uv_platform(self) -> str:
        """How uv names it."""
        return f"x86_64-manylinux_2_{GLIBC}"

    @property
    def marker(self) -> str:
        """How a lock names it."""
        return "sys_platform == 'linux' and platform_machine == 'x86_64' and implementation_name == 'cpython'"

    @property
    def environment(self) -> dict[str, str]:
        """Values of the markers of requirements."""
        return {
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "platform_machine": "x86_64",
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
        }

    @property
    def platforms(self) -> list[str]:
        """Platform tags of wheels that install, the best first."""
        return [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 4, -1)] + list(_OLD)

    def rank(self, filename: str) -> int | None:
        """Say how well a wheel fits: 0 is best, None does not install."""
        try:
            _, _, _, its = parse_wheel_filename(filename)
        except InvalidWheelFilename:
            return None
        ranks = [self._ranks[tag] for tag in its if tag in self._ranks]
        return min(ranks) if ranks else None

    @cached_property
    def _ranks(self) -> dict[tags.Tag, int]:
        return {tag: rank for rank, tag in reversed(list(enumerate(self._tags())))}

    def _tags(self) -> Iterator[tags.Tag]:
        version = tuple(map(int, self.python.split(".")))
        interpreter = "cp" + "".join(map(str, version))
        yield from tags.cpython_tags(version, platforms=self.platforms)
        yield from tags.compatible_tags(version, interpreter=interpreter, platforms=self.platforms)
