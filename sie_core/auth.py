"""Authenticates callers by bearer tokens, compared in constant time by their hashes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sie_core.contracts import InferenceError
from sie_core.contracts.operational import PROBES, is_operational
from sie_core.settings import Settings, SettingsError, holds_several, read_secret

HEADER: Final = "Authorization"
OFFERED: Final = "sie.bearer."
"""What the protocol begins with by which a page gives its token to a WebSocket."""
LOOK_S: Final = 1.0
"""Seconds between two looks at a file of tokens, which bound how long a changed one is not known."""
_PREFIX: Final = re.compile(r"bearer(?:[ \t]+|\Z)", re.IGNORECASE)

log = logging.getLogger(__name__)


def given_tokens(values: Iterable[str]) -> list[str]:
    """Read the values of `Authorization`; `Bearer` may be left out. A header without a token gives an empty one."""
    return [_PREFIX.sub("", each.strip(" \t"), count=1) for each in values]


def credentials(given: Sequence[str], offered: Sequence[str]) -> Sequence[str]:
    """Return what a WebSocket is asked for with, as values of `Authorization`.

    Args:
        given: The values of that header, which a page cannot set.
        offered: The protocols offered, of which a page's `sie.bearer.TOKEN` has its token in base64url.
    """
    tokens = [each.removeprefix(OFFERED) for each in offered if each.startswith(OFFERED)]
    try:
        return given or [urlsafe_b64decode(each + "==").decode("latin-1") for each in tokens]
    except ValueError:
        return [""]


@dataclass(slots=True)
class TokenSource:
    """Tokens that a setting holds, read again when the file that they come from changes."""

    tokens: tuple[str, ...]
    file: Path | None = None
    several: bool = False
    """Whether the file may hold more than one."""
    _stamp: tuple[int, int] | None = None
    _looked: float = float("-inf")
    _told: bool = False

    @classmethod
    def of(cls, settings: Settings, field: str) -> TokenSource:
        """Take those of one field."""
        value = getattr(settings, field)
        held = value if isinstance(value, tuple) else (value,)
        plain = tuple(each.get_secret_value() for each in held if each is not None and each.get_secret_value())
        # Without a stamp the first look reads the file: it may have changed since the settings were read.
        return cls(plain, settings.file_of(field), holds_several(type(settings), field))

    def changed(self, now: float) -> bool:
        """Read the file again if it has another stamp; return whether that gave other tokens.

        A file that cannot be read leaves the tokens as they are.
        """
        if self.file is None or now - self._looked < LOOK_S:
            return False
        self._looked = now
        stamp = _stamp_of(self.file)
        if stamp == self._stamp:
            return False
        try:
            tokens = read_secret(self.file, several=self.several)
        except SettingsError as error:
            if not self._told:
                log.warning("%s; the tokens that it held before stay in force", error)
            self._told = True
            return False
        self._told, self._stamp, before, self.tokens = False, stamp, self.tokens, tokens
        if tokens != before:
            log.info("%s was read again, and holds %d tokens", self.file, len(tokens))
        return tokens != before


class TokenSet:
    """A set of tokens.

    Args:
        sources: Where they are held; None and empty ones are ignored.
        compare: Compares two hashes.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        sources: Iterable[TokenSource | str | None],
        compare: Callable[[bytes, bytes], bool] = hmac.compare_digest,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Copies: each set looks for changes by itself.
        self._sources = [
            replace(each) if isinstance(each, TokenSource) else TokenSource((each,)) for each in sources if each
        ]
        self._compare, self._clock = compare, clock
        self._hashes = self._hashed()

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def holds(self, token: str) -> bool:
        """Whether `token` is one of the configured tokens.

        The duration depends neither on the token found nor on how much of it matches.
        """
        now = self._clock()
        changed = [source.changed(now) for source in self._sources]
        if any(changed):
            self._hashes = self._hashed()
        hashed = _hash(token)
        matches = [self._compare(hashed, each) for each in self._hashes]
        return any(matches)

    def _hashed(self) -> list[bytes]:
        return [_hash(each) for each in dict.fromkeys(token for source in self._sources for token in source.tokens)]


class Auth:
    """Whether a caller of a program may call: everybody, or only with a token.

    Args:
        tokens: Tokens of clients; without any, everybody may call.
        pools: Tokens of those who may change pools. They may do everything else, too.
        exempt: Whether operational paths answer everybody.
    """

    def __init__(
        self,
        tokens: Sequence[TokenSource | str] = (),
        pools: Sequence[TokenSource | str] = (),
        *,
        exempt: bool = False,
    ) -> None:
        self.on = bool(tokens)
        self._clients, self._pools = TokenSet([*tokens, *pools]), TokenSet(pools)
        self._exempt = exempt

    @classmethod
    def of(cls, settings: Settings, pools: Sequence[TokenSource] = ()) -> Auth:
        """Take the rule of the settings; `pools` are the tokens of who may change pools.

        Raises:
            SettingsError: Tokens are required, and there are none.
        """
        sources = [TokenSource.of(settings, field) for field in ("auth_token", "auth_tokens")]
        tokens = [each for each in sources if each.tokens]
        if settings.auth_mode == "none":
            if tokens:
                log.warning("SIE_AUTH_MODE is none: everybody may call, although tokens are set")
            return cls()
        if not tokens:
            raise SettingsError(
                f"SIE_AUTH_MODE={settings.auth_mode} lets nobody call: set SIE_AUTH_TOKEN, or SIE_AUTH_TOKENS to "
                "several, or SIE_AUTH_MODE=none to let everybody."
            )
        return cls(tokens, [each for each in pools if each.tokens], exempt=settings.auth_exempt_operational)

    def check(self, path: str, authorization: Sequence[str]) -> None:
        """Refuse a request that may not be answered.

        Args:
            path: Its path.
            authorization: The values of its header.

        Raises:
            InferenceError: `UNAUTHORIZED`: it has no token, or an unknown one.
        """
        if not self.on or path in PROBES or (self._exempt and is_operational(path)):
            return
        given = given_tokens(authorization)
        if not any(given):
            raise _refusal("UNAUTHORIZED", "A token is needed: send `Authorization: Bearer …`.")
        if len(given) > 1 or not self._clients.holds(given[0]):
            raise _refusal("UNAUTHORIZED", "This token is not one that may call here.")

    def check_admin(self, authorization: Sequence[str]) -> None:
        """Refuse a request that changes pools without permission; call after `check` has accepted it.

        Raises:
            InferenceError: `FORBIDDEN`: its token is missing or not the administrator's.
        """
        if not self.on:
            return
        if not self._pools:
            raise _refusal("FORBIDDEN", "No token may change pools: SIE_POOL_TOKEN is not set for this gateway.")
        given = given_tokens(authorization)
        if len(given) != 1 or not self._pools.holds(given[0]):
            raise _refusal("FORBIDDEN", "This token may not change pools; that of SIE_POOL_TOKEN may.")


def client_token(settings: Settings) -> str | None:
    """Return a token for this installation's own programs; None if no token is needed."""
    tokens = () if settings.auth_mode == "none" else (settings.auth_token, *settings.auth_tokens)
    return next((token.get_secret_value() for token in tokens if token is not None), None)


def _refusal(code: str, message: str) -> InferenceError:
    return InferenceError(code, message, param=HEADER)


def _stamp_of(file: Path) -> tuple[int, int] | None:
    """Tell one state of a file from another; None where it cannot be looked at."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _hash(token: str) -> bytes:
    """Hash a token to a length that reveals nothing; headers are Latin-1."""
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()
