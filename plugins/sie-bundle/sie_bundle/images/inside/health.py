"""Asks the server of this container whether it lives: `health.py [PORT]`, SIE_HTTP_PORT where none is given."""

from __future__ import annotations

import http.client
import os
import sys


def main(arguments: list[str]) -> int:
    """Return 0 where `/livez` answers 200 within three seconds, else 1 with the reason on standard error."""
    port = int(arguments[0] if arguments else os.environ.get("SIE_HTTP_PORT", "8080"))
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"port {port}: {error}\n")
        return 1
    if status != 200:
        sys.stderr.write(f"port {port}: /livez answered {status}\n")
    return int(status != 200)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
