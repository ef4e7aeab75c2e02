"""Whatever a server answers, a call returns or raises an error of the SDK; nothing else escapes."""

from __future__ import annotations

import contextlib
import json
import math

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sie_sdk import SIEError, wire
from sie_sdk._calls.exchange import Response

WORDS = """
    model items id dense sparse multivector values indices dtype dims truncated tokens kept timing total_ms usage
    input_tokens error detail code message param models name permanent attempts
"""
KEYS = st.sampled_from(WORDS.split())
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from([0.5, -1.0, math.inf])
    | st.sampled_from(["float32", "int8", "MODEL_LOADING", "", "text"])
)
PLAIN = st.recursive(ATOMS, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=5))
PACKED = st.recursive(
    ATOMS | st.binary(max_size=3) | st.sampled_from([np.zeros(3, np.float32), np.float32(1), np.zeros((2, 0))]),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=5),
)
ITEMS = st.lists(st.dictionaries(KEYS, PACKED, max_size=5), max_size=2)
BODIES = (
    PLAIN.map(lambda body: ("application/json", json.dumps(body).encode()))
    | PACKED.map(lambda body: ("application/msgpack", wire.pack(body)))
    | st.tuples(ITEMS, PACKED).map(
        lambda parts: ("application/msgpack", wire.pack({"model": "m", "items": parts[0], "timing": parts[1]}))
    )
    | st.binary(max_size=50).map(lambda body: ("text/plain", body))
)


@given(BODIES, st.sampled_from([200, 202, 204, 302, 400, 404, 429, 500, 502, 503, 504]), st.text(max_size=5))
@example(("text/plain", b""), 429, "0")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_errors_of_the_sdk_escape(rehearsal, body, status, hint):
    content_type, content = body
    rehearsal.answer_s = 1.0  # one that is to be asked again at once is asked until the budget ends
    answer = Response(status, {"content-type": content_type, "retry-after": hint}, content)
    with contextlib.suppress(SIEError):
        rehearsal.encode(answer, provision_timeout_s=0)
    for operation in (rehearsal.protocol().list_models({}), rehearsal.protocol().get_model("m", {})):
        with contextlib.suppress(SIEError):
            rehearsal.play(operation, [answer])
