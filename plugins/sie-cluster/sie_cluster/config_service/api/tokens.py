"""Who may do what: the tokens of the config service, compared in constant time."""

from __future__ import annotations

from typing import Final, Literal

from starlette.datastructures import Headers

from sie_cluster.settings import ClusterSettings
from sie_core.auth import HEADER, TokenSet, TokenSource, given_tokens
from sie_core.contracts import InferenceError

Right = Literal["read", "export", "write"]

NONE: Final = TokenSource(())
_PRODUCTION: Final = frozenset({"prod", "production"})
_SET: Final[dict[Right, str]] = {
    "read": "SIE_CONFIG_READ_TOKEN",
    "export": "SIE_CONFIG_READ_TOKEN",
    "write": "SIE_ADMIN_TOKEN",
}
"""The variable whose token is for that."""


class Tokens:
    """The tokens in force. Without any, everybody may do everything, except in production.

    Args:
        admin: Writes, reads and exports.
        config_read: Reads and exports.
        auth: Reads.
        production: Whether nobody may do anything without tokens.
    """

    def __init__(
        self,
        admin: TokenSource = NONE,
        config_read: TokenSource = NONE,
        auth: TokenSource = NONE,
        *,
        production: bool,
    ) -> None:
        rights: dict[Right, tuple[TokenSource, ...]] = {
            "read": (admin, config_read, auth),
            "export": (admin, config_read),
            "write": (admin,),
        }
        self._accepted = {right: TokenSet(tokens) for right, tokens in rights.items()}
        self._production = production

    @classmethod
    def of(cls, settings: ClusterSettings) -> Tokens:
        """Take those of the settings."""
        environments = {(each or "").lower() for each in (settings.deployment_env, settings.env)}
        return cls(
            *(TokenSource.of(settings, field) for field in ("admin_token", "config_read_token", "auth_token")),
            production=bool(environments & _PRODUCTION),
        )

    @property
    def open(self) -> bool:
        """Whether everybody may do everything."""
        return not self._accepted["read"] and not self._production

    def check(self, headers: Headers, right: Right) -> None:
        """Refuse a request that may not do this.

        Raises:
            InferenceError: `UNAUTHORIZED` without a token, `FORBIDDEN` with one that is not for this, or where no
                token is for it.
        """
        if self.open:
            return
        accepted = self._accepted[right]
        if not accepted:
            raise _forbidden(f"No token may {_told(right)}: {_SET[right]} is not set for this config service.")
        given = given_tokens(headers.getlist("authorization"))
        if not any(given):
            message = f"A token is needed to {_told(right)}: send `Authorization: Bearer …`."
            raise InferenceError("UNAUTHORIZED", message, param=HEADER)
        if not accepted.holds(given[0]) or len(given) > 1:
            raise _forbidden(f"This token may not {_told(right)}.")


def _told(right: Right) -> str:
    return {"read": "read configs", "export": "export the configs", "write": "write configs"}[right]


def _forbidden(message: str) -> InferenceError:
    return InferenceError("FORBIDDEN", message, param=HEADER)
