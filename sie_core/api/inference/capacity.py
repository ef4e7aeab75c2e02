"""The capacity that a client asks for: a machine profile, and the resource pool that it leased."""

from __future__ import annotations

from dataclasses import dataclass

from sie_core.api.request import RequestHeaders
from sie_core.contracts import InferenceError, InvalidInput

PROFILE, POOL = "X-SIE-MACHINE-PROFILE", "X-SIE-Pool"
_PROFILE, _POOL = PROFILE.lower(), POOL.lower()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is asked for, in lower case; None where a client leaves it open."""

    profile: str | None = None
    pool: str | None = None


ANY = Capacity()


def asked_capacity(headers: RequestHeaders) -> Capacity:
    """Read both headers; that of the profile may be `pool/profile`.

    Raises:
        InvalidInput: They name two pools.
    """
    if _PROFILE not in headers and _POOL not in headers:
        return ANY
    beside, _, profile = headers.get(_PROFILE, "").strip().lower().rpartition("/")
    pool = headers.get(_POOL, "").strip().lower()
    if beside and pool and beside != pool:
        message = f"{PROFILE} names the pool {beside[:100]!r} and {POOL} is {pool[:100]!r}; name one of them."
        raise InvalidInput(message, param=POOL)
    return Capacity(profile or None, pool or beside or None)


def check_profile(asked: str | None, own: str | None) -> None:
    """Refuse a profile that is not this server's own, where there are no others to choose from."""
    if asked is None or (own is not None and asked == own.lower()):
        return
    is_a = f"is {own!r}" if own else "has no machine profile"
    raise InferenceError(
        "INVALID_INPUT",
        f"The machine profile {asked[:100]!r} was asked for and this server {is_a}; call it without `gpu`.",
        param=PROFILE,
        details={"requested_profile": asked[:100], "worker_identity": own},
    )
