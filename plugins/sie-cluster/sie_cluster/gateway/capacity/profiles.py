"""The machine profiles that requests may ask for: those that can be scaled up, and those of living workers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from sie_cluster.queue.subjects import ANY_PROFILE
from sie_core.api.ops.health import ANY_GPU, NO_GPU
from sie_core.contracts import InferenceError

SPOT = "-spot"
"""What follows the name of a profile in that of its machines which may be taken away."""
HEADER = "X-SIE-MACHINE-PROFILE"


class Profiles:
    """Those of one cluster.

    Args:
        configured: That can be scaled up; lower case.
        alive: Gives those of living workers.
    """

    def __init__(self, configured: Iterable[str] = (), alive: Callable[[], Collection[str]] = frozenset[str]) -> None:
        self.configured, self._alive = frozenset(configured), alive
        self.refused = 0
        """Requests for others."""

    def known(self) -> frozenset[str]:
        """List them."""
        return self.configured | (frozenset(self._alive()) - {ANY_PROFILE})

    def find(self, asked: str) -> str:
        """Return the profile whose workers are asked: this one, or its spot machines where only they are known.

        `cpu` and `any`, which workers without a profile show as their `gpu`, ask any worker unless a profile has that
        name.

        Raises:
            InferenceError: `INVALID_INPUT`: it is none of those, which are named.
        """
        known = self.configured if asked in self.configured else self.known()
        for each in (asked, asked + SPOT):
            if each in known:
                return each
        if asked in (ANY_GPU, NO_GPU):
            return ANY_PROFILE
        self.refused += 1
        listed = sorted(known)
        there = f"there are {', '.join(listed)}" if listed else "this cluster has none (SIE_GATEWAY_CONFIGURED_GPUS)"
        raise InferenceError(
            "INVALID_INPUT",
            f"The machine profile {asked[:100]!r} was asked for, and {there}; ask for one of them, or for none.",
            param=HEADER,
            details={"requested_profile": asked[:100], "known_profiles": listed},
        )
