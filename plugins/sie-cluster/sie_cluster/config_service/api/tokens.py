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
_TOLD: Final[dict[Right, tuple[str, str]]] = {
    "read": ("read configs", "SIE_CONFIG_READ_TOKEN"),
    "export": ("export the configs", "SIE_CONFIG_READ_TOKEN"),
    "write": ("write configs", "SIE_ADMIN_TOKEN"),
}
"""What that is, and the variable whose token is for it."""


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
        accepted, (what, variable) = self._accepted[right], _TOLD[right]
        given = given_tokens(headers.getlist("authorization"))
        if not accepted:
            code, message = "FORBIDDEN", f"No token may {what}: {variable} is not set for this config service."
        elif not any(given):
            code, message = "UNAUTHORIZED", f"A token is needed to {what}: send `Authorization: Bearer …`."
        elif not accepted.holds(given[0]) or len(given) > 1:
            code, message = "FORBIDDEN", f"This token may not {what}."
        else:
            return
        raise InferenceError(code, message, param=HEADER)
