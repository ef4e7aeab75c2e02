"""Every limit of the HTTP API in one table: its value, and the error of a violation.

Fixed limits are constants of this module; the others are settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sie_sdk import wire
from sie_sdk.errors import error_spec

from sie_core.contracts.family.images import (
    MAX_IMAGE_ASPECT,
    MAX_IMAGE_PARTS,
    MAX_IMAGE_PIXELS,
    MAX_IMAGE_SCANS,
    MAX_REQUEST_PIXELS,
)
from sie_core.serving.bounds import MAX_HEADERS_BYTES, MAX_HEADERS_S
from sie_core.settings import Settings, variable

MAX_ITEMS: Final = 16_384
"""Items of one `encode` or `extract`."""
MAX_DOCUMENTS: Final = 1_000
"""Documents of one `score`."""
MOST_BODIES: Final = 16
"""How many bodies of the largest size the requests in flight may hold together."""
MAX_LABELS: Final = 1_000
"""Labels of one `extract`."""
MAX_LABEL_CHARS: Final = 1_000
"""Characters of a label; models cache labels that they have tokenised."""
MAX_SCHEMA_DEPTH: Final = 128
"""Levels of nesting of an `output_schema`."""
MAX_SCHEMA_VALUES: Final = 100_000
"""Values in an `output_schema`, maps and lists included."""
MAX_EMBEDDING_INPUTS: Final = 2_048
"""Inputs of one request on `/v1/embeddings`, as OpenAI has it."""
MAX_TOKENIZED_BYTES: Final = 131_072
"""Bytes of all texts of one `/tokenize`; every token, perhaps one per character, becomes a map of the reply."""
MAX_DECODED_TOKENS: Final = 131_072
"""Token ids of one `/decode`."""
MAX_MODEL_ID_CHARS: Final = 256
"""Characters of a model id in a path or body."""
MAX_ZSTD_WINDOW: Final = 8 * 2**20
"""Bytes that unpacking zstd may look back, and has in memory; RFC 9659 lets no sender need more."""
MAX_BODY_VALUES: Final = 1_000_000
"""Texts, keys, lists and maps of a body; each becomes an object, and one byte may take seventy bytes of memory."""
MAX_BODY_NUMBERS: Final = 4_200_000
"""The same and the numbers of a JSON body, which take less memory; 2048 inputs of 2048 token ids fit."""
MAX_JSON_DEPTH: Final = 254
"""Levels of nesting of a JSON body; orjson writes no deeper ones."""

MAX_LOAD_WAIT_S: Final = 600
"""Seconds that a client may have its request wait for a model to load; a longer `Prefer: wait=N` is cut to it."""

MAX_BODY_S: Final = 600
"""Seconds that a client may take to send a body; its request counts as in flight meanwhile."""
MAX_BODY_PAUSE_S: Final = 30
"""Seconds in which it must send `MIN_BODY_PROGRESS` further bytes, or the rest."""
MIN_BODY_PROGRESS: Final = 65_536
"""Bytes that a client has to send of its body in each `MAX_BODY_PAUSE_S`."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: fixed, or the default of a setting.

    `code` is the code of the error table that a violation answers.
    """

    name: str
    code: str
    fixed: int | str | None = None
    setting: str | None = None
    """The field of `Settings` that holds the limit."""
    default: str | None = None
    """The meaning of an unset setting that has no default."""

    @property
    def value(self) -> str:
        """The limit for a reader, with the variable that sets it."""
        if self.setting is None:
            return f"{self.fixed:,}" if isinstance(self.fixed, int) else str(self.fixed)
        default = self.default or Settings.model_fields[self.setting].default
        return (
            f"{default:,} (`{variable(self.setting)}`)"
            if isinstance(default, int | float)
            else (f"{default} (`{variable(self.setting)}`)")
        )

    @property
    def violation(self) -> str:
        """The status and code of the answer."""
        return f"{error_spec(self.code).status} `{self.code}`"


LIMITS: Final = (
    Limit("request line and headers, bytes", "PAYLOAD_TOO_LARGE", MAX_HEADERS_BYTES),
    Limit("time to send the headers, s", "DEADLINE_EXCEEDED", MAX_HEADERS_S),
    Limit("request body, also unpacked, bytes", "PAYLOAD_TOO_LARGE", setting="max_request_body_bytes"),
    Limit("reply, bytes", "REPLY_TOO_LARGE", setting="max_reply_bytes"),
    Limit("time to send the body, s", "DEADLINE_EXCEEDED", MAX_BODY_S),
    Limit(
        f"time to send {MIN_BODY_PROGRESS:,} bytes more of it, or its rest, s", "DEADLINE_EXCEEDED", MAX_BODY_PAUSE_S
    ),
    Limit("text and metadata of one item, bytes", "INVALID_INPUT", setting="max_item_text_bytes"),
    Limit("items of one `encode` or `extract`", "INVALID_INPUT", MAX_ITEMS),
    Limit("documents of one `score` or rerank", "INVALID_INPUT", MAX_DOCUMENTS),
    Limit("labels of one `extract`", "INVALID_INPUT", MAX_LABELS),
    Limit("characters of a label", "INVALID_INPUT", MAX_LABEL_CHARS),
    Limit("nesting of an `output_schema`", "INVALID_INPUT", MAX_SCHEMA_DEPTH),
    Limit("values of an `output_schema`", "INVALID_INPUT", MAX_SCHEMA_VALUES),
    Limit(
        "inputs of one request on `/v1/embeddings`, for Cohere's or for TEI's vectors",
        "INVALID_INPUT",
        MAX_EMBEDDING_INPUTS,
    ),
    Limit("texts of one `/tokenize`, bytes", "INVALID_INPUT", MAX_TOKENIZED_BYTES),
    Limit("token ids of one `/decode`", "INVALID_INPUT", MAX_DECODED_TOKENS),
    Limit("tokens of a text, where truncation is refused", "INPUT_TOO_LONG", "the model's maximum length"),
    Limit("characters of a model id", "INVALID_INPUT", MAX_MODEL_ID_CHARS),
    Limit("pixels of one image", "INVALID_INPUT", MAX_IMAGE_PIXELS),
    Limit("pixels of all images of one request", "INVALID_INPUT", MAX_REQUEST_PIXELS),
    Limit("scans of a JPEG", "INVALID_INPUT", MAX_IMAGE_SCANS),
    Limit("segments of a JPEG, chunks of a PNG", "INVALID_INPUT", MAX_IMAGE_PARTS),
    Limit("longer edge of an image, over its shorter one", "INVALID_INPUT", MAX_IMAGE_ASPECT),
    Limit("window of a body compressed by zstd, bytes", "INVALID_INPUT", MAX_ZSTD_WINDOW),
    Limit("texts, keys, lists and maps of a body; in msgpack numbers too", "INVALID_INPUT", MAX_BODY_VALUES),
    Limit("those and the numbers of a JSON body", "INVALID_INPUT", MAX_BODY_NUMBERS),
    Limit("nesting of a JSON body", "INVALID_INPUT", MAX_JSON_DEPTH),
    Limit("nesting of a msgpack body", "INVALID_INPUT", wire.MAX_DEPTH),
    Limit("entries of one msgpack list or map", "INVALID_INPUT", wire.MAX_LENGTH),
    Limit("requests in flight", "QUEUE_FULL", setting="max_concurrent_requests"),
    Limit("bytes of the bodies of all requests in flight", "QUEUE_FULL", f"{MOST_BODIES} of the largest bodies"),
    Limit("requests in flight of one client, and bytes of their bodies", "QUEUE_FULL", "three quarters of both"),
    Limit("cost units queued", "QUEUE_FULL", setting="max_queued_cost", default="64 batches"),
    Limit(
        "wait of native routes for a load that is predicted to end by then, s",
        "MODEL_LOADING",
        setting="native_load_wait_s",
    ),
    Limit("the same where the client says `Prefer: wait=N`, s", "MODEL_LOADING", MAX_LOAD_WAIT_S),
    Limit("requests in flight that wait for a load", "MODEL_LOADING", "half of those in flight"),
    Limit(
        "wait for a model to load on OpenAI-, Cohere- and TEI-shaped routes, s", "MODEL_LOADING", setting="model_wait_s"
    ),
    Limit("time for the answer", "DEADLINE_EXCEEDED", "what the client's `X-SIE-Timeout-Ms` says"),
    Limit("time for requests in flight after SIGTERM, s", "QUEUE_UNAVAILABLE", setting="drain_timeout_s"),
)
"""The table of `docs/operate/limits.md`."""
