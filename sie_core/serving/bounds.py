"""What one connection may have the server hold, and for how long."""

from __future__ import annotations

from typing import Final

MAX_HEADERS_BYTES: Final = 65_536
"""Bytes of a request's line and headers."""
MAX_HEADERS_S: Final = 30
"""Seconds in which they must come, counted from the first of them."""
MAX_PIPELINED: Final = 16
"""Requests of one connection that wait for an earlier one; reading stops there until it is answered."""
MAX_STALL_S: Final = 60
"""Seconds after which a client that takes nothing of its answer is left."""
