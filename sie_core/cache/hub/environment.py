"""The variables of the Hub's client, checked when the server starts: with a wrong one every download would fail."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from sie_core.settings import SettingsError

_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def check_variables() -> None:
    """Refuse an address of the Hub that has no scheme or host, and a token that no HTTP header can carry.

    Raises:
        SettingsError: Names the variable, and the remedy.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return
    if not _is_address(constants.ENDPOINT):
        shown = re.sub(r"^.*@", "…@", constants.ENDPOINT)
        raise SettingsError(
            f"HF_ENDPOINT={shown!r}: this is no address of a Hub; write it in full, as `https://huggingface.co`, or "
            "unset it"
        )
    for name in _TOKENS:
        if not re.fullmatch(r"[!-~]*", re.sub(r"\s", "", os.environ.get(name, ""))):  # its client drops line breaks
            raise SettingsError(f"{name}=(a secret): a token of the Hub is printable ASCII; copy it anew")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number
        return False
