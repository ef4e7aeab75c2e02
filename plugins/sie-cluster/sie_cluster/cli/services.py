"""Asks the HTTP services of a cluster, as commands do: one connection, no proxy of the environment, no redirect.

A token goes to the service alone that it is for, and no message holds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import click
import httpx
from pydantic import SecretStr

CONNECT_S, ANSWER_S = 5.0, 60.0


class Away(click.ClickException):
    """A service gives no answer that can be used."""


class Refused(click.ClickException):
    """A service refused a request; the message says who, `error` holds what it said."""

    def __init__(self, told: str, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(told)
        self.status, self.error = status, error

    @property
    def name(self) -> str:
        """Its name in snake case, as tools of the config service read it."""
        return str(self.error.get("error", ""))


class Service:
    """One service; a context manager that closes the connection.

    Args:
        variable: The setting that names it, for messages.
        url: Of it.
        token: The first that is set is sent.
        token_variable: Names the setting of a token that it refuses.

    Raises:
        ClickException: There is no URL.
    """

    def __init__(self, variable: str, url: str | None, *token: SecretStr | None, token_variable: str) -> None:
        if not url:
            raise click.ClickException(f"{variable} is not set: the URL of the service, as http://host:8080.")
        self.url, self._variable, self._token_variable = url.rstrip("/"), variable, token_variable
        given = next((each for each in token if each is not None), None)
        headers = {} if given is None else {"Authorization": f"Bearer {given.get_secret_value()}"}
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

    def send(self, method: str, path: str, body: bytes | None = None, *, query: str = "") -> httpx.Response:
        """Send a request; return the answer, whatever its status.

        Raises:
            Away: There is none.
        """
        try:
            return self._client.request(method, f"{path}{query and '?'}{query}", content=body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            why = str(error)[:200] or type(error).__name__
            raise Away(f"{self._variable}: {self.url} cannot be reached: {why}.") from None

    def ask(self, method: str, path: str, body: bytes | None = None, *, query: str = "") -> Any:
        """Send a request; return the JSON of a success.

        Raises:
            Refused: Of a status from 400 on, but those of `Away`.
            Away: No answer, one that is no JSON, 401, 403 or 5xx.
        """
        reply = self.send(method, path, body, query=query)
        try:
            told = reply.json()
        except ValueError:
            told = None
        error = told.get("error") if isinstance(told, dict) else None
        where = f"{self._variable}: {self.url} answered {reply.status_code}"
        if reply.status_code in (401, 403):
            why = error.get("message", "") if isinstance(error, dict) else ""
            raise Away(f"{where} to {method} {path}: {why} {self._token_variable} holds the token that is sent.")
        if reply.is_success and told is not None:
            return told
        if reply.is_client_error and isinstance(error, dict):
            raise Refused(f"{where} to {method} {path}: {error.get('message')}", reply.status_code, error)
        why = error.get("message") if isinstance(error, dict) else "that is no answer of SIE"
        raise Away(f"{where} to {method} {path}: {why}")
