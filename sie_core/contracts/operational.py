"""The paths that report a server's state; one list for all code that treats them specially."""

from __future__ import annotations

import re
from typing import Final

PROBES: Final = frozenset({"/healthz", "/livez", "/readyz", "/ping"})
"""They report only that a process answers, works or is ready.

They wait for nothing and need no token, because orchestrators have none.
"""
SERVER_FEED: Final = "/ws/status"
"""The WebSocket that tells the state of a server or of a worker."""
FLEET_FEED: Final = "/ws/cluster-status"
"""That of the workers behind a gateway."""
_OPERATIONAL: Final = re.compile(r"/health|/metrics|/ws/.*|/tei/.+/health")
"""They report models, workers and problems.

The last one is a path below a model; `/tei/health` is a model's own path.
"""


def is_operational(path: str) -> bool:
    """Whether `path` reports a server's state to callers that `SIE_AUTH_EXEMPT_OPERATIONAL` exempts."""
    return _OPERATIONAL.fullmatch(path) is not None
