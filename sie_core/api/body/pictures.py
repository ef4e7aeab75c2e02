"""Pictures in JSON, as other APIs have them: a data URI or base64 text.

Addresses are not fetched: a client could make the server read addresses of its own network.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sie_core.api.body.base64_text import decode_base64
from sie_core.api.body.body import kind_of
from sie_core.contracts import InvalidInput, Media

_DATA_URI: Final = re.compile(r"data:(?:image/([\w.+-]+))?[^,]{0,100};base64,", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)


def read_picture(given: Any, param: str) -> Media:
    """Decode a picture from text; its bytes are not checked.

    Raises:
        InvalidInput: The text is an address or no base64; `param` names it.
    """
    if not isinstance(given, str):
        raise InvalidInput(f"`{param}` must be a picture in base64, not {kind_of(given)}.", param=param)
    if address := _ADDRESS.match(given):
        raise InvalidInput(
            f"`{param}` is an address ({address[0]}…), and this server fetches nothing: send the picture itself, as "
            "base64 or a `data:` URI.",
            param=param,
        )
    head = _DATA_URI.match(given)
    try:
        data = decode_base64(given[head.end() :] if head else given)
        problem = None if data else "is empty"
    except ValueError as error:
        problem = str(error)
    if problem is not None:
        message = f"`{param}` {problem}; send a picture in base64, plain or as `data:image/…;base64,…`."
        raise InvalidInput(message, param=param)
    return Media(data, head[1].lower() if head and head[1] else None)
