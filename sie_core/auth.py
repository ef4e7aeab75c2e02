"""Authenticates callers by bearer tokens, compared in constant time by their hashes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pydantic import SecretStr

from sie_core.contracts import InferenceError
from sie_core.contracts.operational import PROBES, is_operational
from sie_core.settings import Settings, SettingsError

HEADER: Final = "Authorization"
_PREFIX: Final = re.compile(r"bearer(?:[ \t]+|\Z)", re.IGNORECASE)

log = logging.getLogger(__name__)


def given_tokens(values: Iterable[str]) -> list[str]:
    """Read the values of `Authorization`; `Bearer` may be left out. A header without a token gives an empty one."""
    return [_PREFIX.sub("", each.strip(" \t"), count=1) for each in values]


class TokenSet:
    """A set of tokens.

    Args:
        tokens: The tokens; None and empty ones are ignored.
        compare: Compares two hashes.
    """

    def __init__(
        self, tokens: Iterable[str | None], compare: Callable[[bytes, bytes], bool] = hmac.compare_digest
    ) -> None:
        self._hashes = [_hash(each) for each in dict.fromkeys(tokens) if each]
        self._compare = compare

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def holds(self, token: str) -> bool:
        """Whether `token` is one of the configured tokens.

        The duration depends neither on the token found nor on how much of it matches.
        """
        hashed = _hash(token)
        matches = [self._compare(hashed, each) for each in self._hashes]
        return any(matches)


class Auth:
    """Whether a caller of a program may call: everybody, or only with a token.

    Args:
        tokens: Tokens of clients; without any, everybody may call.
        admin: Tokens of those who may change pools. They may do everything else, too.
        exempt: Whether operational paths answer everybody.
    """

    def __init__(self, tokens: Sequence[str] = (), admin: str | None = None, *, exempt: bool = False) -> None:
        self.on = bool(tokens)
        self._clients, self._admin = TokenSet([*tokens, admin]), TokenSet([admin])
        self._exempt = exempt

    @classmethod
    def of(cls, settings: Settings, admin: SecretStr | None = None) -> Auth:
        """Take the rule of the settings; `admin` is the token of who may change pools.

        Raises:
            SettingsError: Tokens are required, and there are none.
        """
        tokens = [each for each in (_plain(settings.auth_token), *map(_plain, settings.auth_tokens)) if each]
        if settings.auth_mode == "none":
            if tokens:
                log.warning("SIE_AUTH_MODE is none: everybody may call, although tokens are set")
            return cls()
        if not tokens:
            raise SettingsError(
                f"SIE_AUTH_MODE={settings.auth_mode} lets nobody call: set SIE_AUTH_TOKEN, or SIE_AUTH_TOKENS to "
                "several, or SIE_AUTH_MODE=none to let everybody."
            )
        return cls(tokens, _plain(admin), exempt=settings.auth_exempt_operational)

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
        if not self._admin:
            raise _refusal("FORBIDDEN", "No token may change pools: SIE_ADMIN_TOKEN is not set for this gateway.")
        given = given_tokens(authorization)
        if len(given) != 1 or not self._admin.holds(given[0]):
            raise _refusal("FORBIDDEN", "This token may not change pools; that of SIE_ADMIN_TOKEN may.")


def client_token(settings: Settings) -> str | None:
    """Return a token for this installation's own programs; None if no token is needed."""
    tokens = () if settings.auth_mode == "none" else (settings.auth_token, *settings.auth_tokens)
    return next((token.get_secret_value() for token in tokens if token is not None), None)


def _refusal(code: str, message: str) -> InferenceError:
    return InferenceError(code, message, param=HEADER)


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _hash(token: str) -> bytes:
    """Hash a token to a length that reveals nothing; headers are Latin-1."""
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()
