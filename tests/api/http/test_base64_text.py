import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sie_core.api.body import base64_text
from sie_core.api.body.base64_text import decode_base64


@given(st.binary(max_size=40), st.booleans(), st.booleans(), st.integers(1, 9))
def test_every_spelling_is_read_and_in_parts_as_a_whole(data, url_safe, padded, width):
    text = (base64.urlsafe_b64encode if url_safe else base64.b64encode)(data).decode()
    text = text if padded else text.rstrip("=")
    wrapped = "".join(f"{text[start : start + width]}\r\n" for start in range(0, len(text), width))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base64_text, "PART", 5)
        assert decode_base64(text) == data
        assert decode_base64(wrapped) == data


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("AAAAAAAA==", "padding would be ''"), ("AAAA=", "padding would be ''"), ("AAA==", "padding would be '='"),
        ("==", "padding would be ''"), ("AAA=AAAA", "character 4 is '='"), ("AA=A", "character 3 is '='"),
        ("AAAAA", "cut off"), ("AAAAé", "character 5 is 'é'"), ("AA A", "character 3 is ' '"),
    ],
)  # fmt: skip
def test_what_is_no_base64_is_refused_with_the_reason(text, reason):
    with pytest.raises(ValueError, match="is no base64") as refused:
        decode_base64(text)
    assert reason in str(refused.value)


def test_a_long_text_is_decoded():
    data = bytes(range(256)) * 4096 + b"x"
    assert decode_base64(base64.b64encode(data).decode()) == data
    with pytest.raises(ValueError, match="padding"):
        decode_base64(base64.b64encode(data).decode() + "=")
