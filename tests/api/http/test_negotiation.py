import pytest

from sie_core.api.body.negotiation import JSON_TYPE, MSGPACK_TYPE, body_format, reply_type
from sie_core.contracts import InferenceError


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/msgpack", "msgpack"),
        ("application/x-msgpack", "msgpack"),
        ("Application/MsgPack; charset=binary", "msgpack"),
        ("", "json"),
        ("application/json", "json"),
        ("application/json; charset=UTF-8", "json"),
        ("application/vnd.api+json", "json"),
        ("application/x-www-form-urlencoded", "json"),
        ("text/plain", "json"),
    ],
)
def test_the_content_type_tells_the_format_of_a_body(content_type: str, expected: str) -> None:
    assert body_format(content_type) == expected


@pytest.mark.parametrize(
    "content_type", ["image/png", "multipart/form-data; boundary=x", "application/json; charset=latin-1"]
)
def test_a_body_that_cannot_be_read_is_415(content_type: str) -> None:
    with pytest.raises(InferenceError) as raised:
        body_format(content_type)
    assert raised.value.spec.status == 415


def test_a_json_route_takes_no_msgpack() -> None:
    with pytest.raises(InferenceError, match="application/json"):
        body_format("application/msgpack", msgpack=False)


@pytest.mark.parametrize(
    ("accept", "body", "expected"),
    [
        ("", "msgpack", MSGPACK_TYPE),
        ("", "json", JSON_TYPE),
        ("*/*", "msgpack", MSGPACK_TYPE),
        ("*/*", "json", JSON_TYPE),
        ("application/*", "json", JSON_TYPE),
        ("application/json", "msgpack", JSON_TYPE),
        ("application/msgpack", "json", MSGPACK_TYPE),
        ("application/x-msgpack", "json", "application/x-msgpack"),
        ("application/json, application/msgpack", "json", MSGPACK_TYPE),
        ("application/json;q=1, application/msgpack;q=0.5", "msgpack", JSON_TYPE),
        ("application/json, text/plain, */*", "msgpack", JSON_TYPE),
        ("text/html, application/xhtml+xml, */*;q=0.8", "json", JSON_TYPE),
        ("application/msgpack;q=0.2, */*;q=0.9", "json", JSON_TYPE),
    ],
)
def test_an_explicit_accept_decides_and_otherwise_the_body(accept: str, body: str, expected: str) -> None:
    assert reply_type(accept, body) == expected


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/*", "application/json;q=nonsense"])
def test_nothing_acceptable_is_406(accept: str) -> None:
    with pytest.raises(InferenceError) as raised:
        reply_type(accept, "json")
    assert raised.value.spec.status == 406


def test_a_refused_type_is_not_taken_by_a_wildcard() -> None:
    with pytest.raises(InferenceError):
        reply_type("application/json;q=0, */*", "json")
