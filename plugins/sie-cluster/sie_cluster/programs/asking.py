"""Asks another program of a cluster over HTTP, within bounds of time and size.

No proxy of the environment is used, and no redirect is followed: the token goes to that program alone.
"""

from __future__ import annotations

import asyncio
import ssl

import httpx

CONNECT_S = 2.0
KEPT_S = 60.0
"""How long a connection is kept for the next question, within what the other side keeps it."""


class Away(Exception):
    """A program gave no answer that can be used; the message says why and holds no token."""


class Asked:
    """A program that is asked.

    Args:
        url: Its URL.
        token: Is sent to it; None where it asks for none.
        variable: Names the token.
    """

    def __init__(self, url: str, token: str | None, variable: str) -> None:
        self.url, self._variable = url.rstrip("/"), variable
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers=headers if token is None else {**headers, "Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(None, connect=CONNECT_S),  # the whole of an answer has a limit
            limits=httpx.Limits(keepalive_expiry=KEPT_S),
            # To read the certificates of this machine takes 20 ms of a start; without https nobody asks for them.
            verify=False if self.url.startswith("http:") else ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
        )

    async def get(self, path: str, limit_s: float, most_bytes: int) -> bytes:
        """Return the body of its answer.

        Raises:
            Away: It gave none within `limit_s`, another than 200, or one of more than `most_bytes`.
        """
        where = f"{self.url}{path}"
        try:
            async with asyncio.timeout(limit_s), self._client.stream("GET", path) as response:
                if response.status_code != 200:
                    refused = f": {self._variable} may not ask" if response.status_code in (401, 403) else ""
                    raise Away(f"{where} answered {response.status_code}{refused}")
                body = bytearray()
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > most_bytes:
                        raise Away(f"{where} answered more than {most_bytes} bytes")
                return bytes(body)
        except TimeoutError:
            raise Away(f"{where} did not answer within {limit_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Away(f"{where} cannot be reached: {str(error)[:200] or type(error).__name__}") from None

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()
