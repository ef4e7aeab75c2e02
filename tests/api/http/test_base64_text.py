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
    wrong_padding = text.isascii() and (len(text) % 4 != 0 or "=" in text[:-2])
    assert found == (
        binascii.Error if wrong_padding else outcome(lambda whole: base64.b64decode(whole, validate=True), text)
    )


@pytest.mark.parametrize("text", ["AAAAAAAA==", "AAAAAAAA=", "AAAA====", "AA", "==", "AAA=AAAA", "AA=A"])
def test_padding_that_is_not_the_end_of_the_last_group_is_refused(text):
    with pytest.raises(binascii.Error):
        decode_base64(text)


def test_a_long_text_is_decoded():
    data = bytes(range(256)) * 4096 + b"x"
    assert decode_base64(base64.b64encode(data).decode()) == data
    with pytest.raises(binascii.Error):
        decode_base64(base64.b64encode(data).decode()[:-1])
