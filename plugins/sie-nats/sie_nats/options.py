"""Address of the broker and its storage: the settings of one connection."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

SETTINGS = ("user", "password", "creds", "inbox_prefix", "tls_ca", "tls_cert", "tls_key", "storage", "replicas")
"""Names of `SIE_NATS_*`, in lower case."""
INBOX = "_INBOX"


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one connection; secrets are left out of its text."""

    servers: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    creds: str | None = None
    """A file of credentials, as `nsc` writes it."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    storage: str = "file"
    replicas: int = 1
    inbox_prefix: str = INBOX
    """All inboxes of the connection begin with it."""

    @classmethod
    def read(cls, url: str, settings: Mapping[str, str]) -> Options:
        """Read the options of a URL (several joined by commas) and of the settings.

        Raises:
            ValueError: An option cannot be used; the message names it and the allowed values, and holds no secret.
        """
        if unknown := sorted(set(settings) - set(SETTINGS)):
            raise ValueError(f"{unknown[0]!r} is no setting of NATS; there are {', '.join(SETTINGS)}")
        servers, user, password = [], settings.get("user"), settings.get("password")
        for each in filter(None, map(str.strip, url.split(","))):
            parts = urlsplit(each)
            if parts.scheme not in ("nats", "tls") or not parts.hostname:
                raise ValueError(f"{_without_secrets(each)!r} is no URL like nats://host:4222")
            user, password = unquote(parts.username or "") or user, unquote(parts.password or "") or password
            servers.append(_without_secrets(each))
        storage, replicas = settings.get("storage", "file"), settings.get("replicas", "1")
        if storage not in ("file", "memory"):
            raise ValueError(f"SIE_NATS_STORAGE is {storage!r}; it is file or memory")
        if replicas not in ("1", "3", "5"):
            raise ValueError(f"SIE_NATS_REPLICAS is {replicas!r}; it is 1, 3 or 5")
        prefix = settings.get("inbox_prefix", inbox_of(user))
        if prefix != INBOX and not (prefix.startswith(f"{INBOX}.") and _is_subject(prefix)):
            raise ValueError(f"SIE_NATS_INBOX_PREFIX is {prefix!r}; it is {INBOX}. and a name, as {INBOX}.gateway.one")
        return cls(
            tuple(servers), user, password, settings.get("creds"), _tls(settings), storage, int(replicas), prefix
        )

    @property
    def url(self) -> str:
        """The servers, without credentials."""
        return ",".join(self.servers)

    def of_client(self) -> dict[str, Any]:
        """Return the login arguments of nats-py's `connect`."""
        given = {"user": self.user, "password": self.password, "user_credentials": self.creds, "tls": self.tls}
        return {name: value for name, value in given.items() if value is not None}


def inbox_of(user: str | None) -> str:
    """Return the prefix of all inboxes of a user, so that nobody else may read there."""
    return f"{INBOX}.{user}" if user and _is_subject(user) else INBOX


def _is_subject(text: str) -> bool:
    return all(part and not set(part) & set("*> \t\r\n") for part in text.split("."))


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    authority, certificate, key = (settings.get(f"tls_{name}") for name in ("ca", "cert", "key"))
    if (certificate is None) != (key is None):
        raise ValueError("SIE_NATS_TLS_CERT and SIE_NATS_TLS_KEY go together; one of them is missing")
    if authority is None and certificate is None:
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ValueError(f"the files of SIE_NATS_TLS_* cannot be used: {error.strerror or error}") from None
    return context
