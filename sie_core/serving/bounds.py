"""What one connection may occupy, and for how long."""

from __future__ import annotations

from typing import Final

MAX_HEADERS_BYTES: Final = 65_536
"""Bytes of a request's line and headers."""
MAX_HEADERS_S: Final = 30
"""Seconds in which they must arrive, counted from their first byte."""
MAX_PIPELINED: Final = 16
"""Requests of one connection that wait for an earlier one; nothing more is read until it is answered."""
MAX_STALL_S: Final = 60
"""Seconds after which a client that reads nothing of its answer is disconnected."""
MAX_UNREAD_BYTES: Final = 4 * 2**20
"""Bytes that a client may still send after a refusal of its connection."""
MAX_UNREAD_S: Final = 2
"""Seconds in which it must close the connection after that."""
MAX_MESSAGE_BYTES: Final = 65_536
"""Bytes of a message on a WebSocket, where clients have nothing to say."""
KEEP_ALIVE_S: Final = 120
"""How long an idle connection is kept where nobody chose: longer than clients and load balancers keep theirs, which
otherwise send a request into a connection that is just being closed. Go's pool has 90 s, most balancers 60 s."""
CLOSE_S: Final = 2
"""How long connections get to close once every inference request is answered."""
