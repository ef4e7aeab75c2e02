import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sie_core.api.body import base64_text
from sie_core.api.body.base64_text import decode_base64


def outcome(decode, text):
    try:
        return decode(text)
    except ValueError as error:
        return type(error)


@given(st.binary(max_size=40), st.lists(st.tuples(st.integers(0, 60), st.sampled_from("=A+ é\n-"))))
def test_a_text_in_parts_is_read_and_refused_as_a_whole_one(data, changes):
    text = base64.b64encode(data).decode()
    for place, character in changes[:2]:
        text = text[:place] + character + text[place:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base64_text, "PART", 8)
        found = outcome(decode_base64, text)
    assert found == outcome(lambda whole: base64.b64decode(whole, validate=True), text)


def test_a_long_text_is_decoded():
    data = bytes(range(256)) * 4096 + b"x"
    assert decode_base64(base64.b64encode(data).decode()) == data
    with pytest.raises(binascii.Error):
        decode_base64(base64.b64encode(data).decode()[:-1])
