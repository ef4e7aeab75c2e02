import json
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sie_core.api.body.json import pieces, strict, strings
from sie_core.api.body.json.strict import loads
from sie_core.api.http.limits import MAX_BODY_NUMBERS, MAX_BODY_VALUES, MAX_EMBEDDING_INPUTS
from sie_core.contracts import InferenceError

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda child: st.lists(child, max_size=4) | st.dictionaries(st.text(), child, max_size=4),
    max_leaves=20,
)


@given(DOCUMENTS)
def test_what_json_writes_is_read_back(document: object) -> None:
    assert loads(json.dumps(document, ensure_ascii=False).encode()) == document


@given(DOCUMENTS)
def test_escapes_of_every_kind_are_no_duplicates(document: object) -> None:
    assert loads(json.dumps(document, ensure_ascii=True, indent=1).encode()) == document


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": 1, "\\u0061": 1}',
        b'{"x": [{"a\\\\": "\\"", "a\\\\": "q"}]}',
    ],
)
def test_a_key_given_twice_is_refused(data: bytes) -> None:
    with pytest.raises(InferenceError, match="twice"):
        loads(data)


@pytest.mark.parametrize(
    "data", [b"", b"{", b'"\xff"', b'"\\ud800"', b"NaN", b"[1e999]", b"{}x", b"\xef\xbb\xbf" * 2 + b"{}", b"{'a':1}"]
)
def test_what_is_no_json_is_a_400_that_names_the_place(data: bytes) -> None:
    with pytest.raises(InferenceError, match=r"line \d+, column \d+") as raised:
        loads(data)
    assert raised.value.code == "INVALID_INPUT"


@pytest.mark.parametrize("depth", [300, 2_000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(InferenceError):
        loads(b"[" * depth + b"]" * depth)


@pytest.mark.parametrize("value", [b"[]", b'{"a":1}', b'""'])
def test_more_values_than_a_body_may_hold_are_refused_before_they_are_built(value: bytes) -> None:
    with pytest.raises(InferenceError, match="more than 1000000 texts, keys, lists and maps"):
        loads(b"[" + b",".join([value] * (MAX_BODY_VALUES + 2)) + b"]")


def test_more_numbers_than_a_body_may_hold_are_refused_before_they_are_built() -> None:
    with pytest.raises(InferenceError, match="more than 4200000 values"):
        loads(b"[" + b",".join([b"7"] * (MAX_BODY_NUMBERS + 2)) + b"]")


def test_the_token_ids_of_a_full_request_are_read() -> None:
    row = b"[%s]" % b",".join([b"1234"] * 2048)
    body = loads(b'{"model":"acme/ids","input":[%s]}' % b",".join([row] * MAX_EMBEDDING_INPUTS))
    assert body["input"] == [[1234] * 2048] * MAX_EMBEDDING_INPUTS


def test_a_long_text_of_commas_is_one_value() -> None:
    text = ',"\\:[{' * MAX_BODY_VALUES
    assert loads(json.dumps([text]).encode()) == [text]


def test_a_string_without_an_end_is_looked_at_once() -> None:
    with pytest.raises(InferenceError, match="not valid JSON"):
        loads(b'["' + b'\\",' * (2 * MAX_BODY_VALUES))


@contextmanager
def cut_every(size):
    """Have documents cut after every `size` bytes, or wherever they can be after that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", size)
        patch.setattr(pieces, "WINDOW", max(2, size))
        patch.setattr(pieces, "LONG", size)
        patch.setattr(strings, "PART", max(12, size))  # the escapes of one character
        yield


def outcome(data):
    """Return what a document says, or how and where it is wrong."""
    try:
        return loads(data)
    except InferenceError as error:
        return error.message


@given(DOCUMENTS, st.integers(1, 24), st.booleans(), st.sampled_from([None, 1]))
def test_a_document_in_pieces_says_the_same(document, size, ascii_only, indent):
    data = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    with cut_every(size):
        assert loads(memoryview(data)) == document


@given(DOCUMENTS, st.integers(1, 24), st.data())
@example([1, 2], 1, None)
def test_what_is_wrong_with_a_document_is_found_in_pieces_too(document, size, chosen):
    data = bytearray(json.dumps(document, indent=1).encode())
    if chosen is not None:
        place = chosen.draw(st.integers(0, len(data) - 1))
        data[place : place + chosen.draw(st.integers(0, 2))] = chosen.draw(st.sampled_from(b'[]{},:" \\1x')).to_bytes()
    whole = outcome(bytes(data))
    with cut_every(size):
        cut = outcome(bytes(data))
    if isinstance(whole, str) and whole.startswith("The body is not valid"):
        assert isinstance(cut, str)
        assert cut.startswith("The body is not valid")
    else:
        assert cut == whole


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": [1, 2], "b": {"c": [], "c": 2}}',
        b'{"b": {"c": 1, "d": 2, "c": 3}}',
        b'{"": 1, "a": [1, 2, 3], "": 2}',
        b'{"a": [1, 2, 3], "a": 2}',
        b'[[{"a": [[1, 2], [3, 4]], "b": 5, "a": 6}]]',
    ],
)
@pytest.mark.parametrize("size", range(1, 16))
def test_a_key_given_twice_is_refused_across_pieces(data, size):
    with cut_every(size), pytest.raises(InferenceError, match="twice"):
        loads(data)


@pytest.mark.parametrize("size", range(1, 16))
def test_an_empty_key_beside_a_list_in_pieces_is_no_duplicate(size):
    with cut_every(size):
        assert loads(b'{"a": [1, 2, {"b": [3, 4]}], "": 5}') == {"a": [1, 2, {"b": [3, 4]}], "": 5}


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_the_place_of_a_mistake_is_that_in_the_whole_document(size):
    with cut_every(size):
        assert "line 1, column 19:" in outcome('{"ä": ["é", 1, 2, x]}'.encode())
        assert "line 3, column 4:" in outcome(b'{"a": 1,\n "b": 2,\n   x}')
        assert "line 2, column 9: str is not valid UTF-8" in outcome(b'{"a": 1,\n "b": "\xc3\xa9\xff", "c": [1, 2]}')


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b'{"a": ["%s", x]}', 14), (b'{"a": ["%s\x01"]}', 11), (b'{"a": ["%s\\x"]}', 11), (b'{"a": ["%s\\ud800"]}', 11),
        (b'{"a": ["%s', 11), (b'{"a": ["%s\\', 11), (b'{"a": ["%s" 1]}', 13), (b'{"a": ["%s", 1', 15),
        (b'{"a": ["%s\xff"]}', 11),
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["words and " * 40_000, "é日\U0001f600" * 80_000])
def test_the_place_of_a_mistake_beside_or_in_a_long_string_is_that_in_the_document(text, data, place):
    said = outcome(data % text.encode())
    assert said.startswith("The body is not valid JSON at line 1, column ")
    column = int(said.split("column ")[1].split(":")[0])
    assert abs(column - (place - 2 + len(text))) <= 3  # the parser names the beginning or the end of what is wrong


def test_a_key_may_be_a_long_string_and_is_given_once():
    key = "k" * 2 * pieces.LONG
    data = b'{"a": [{"b": 2, "%s": "x", "c": 3}]}' % key.encode()
    assert list(loads(data)["a"][0].items()) == [("b", 2), (key, "x"), ("c", 3)]
    with pytest.raises(InferenceError, match="twice"):
        loads(data.replace(b'"c"', b'"%s"' % key.encode()))


@pytest.mark.parametrize(
    "document",
    [
        "word " * 400_000,
        {
            "items": [
                {"text": 'é日\U0001f600\\"\n ' * 200_000},
                {"text": "\\" * 300_000},
                {"images": [{"data": "QUJD" * 300_000}]},
            ]
        },
        {"items": [{"text": "a \\ text, " * 2000, "id": str(number)} for number in range(64)]},
        {"input": [[1234] * 2048] * 256},
        [["w"] * 300_000],
        {"a": {str(number): {"x": number, "y": [1, 2]} for number in range(50_000)}},
        [1.5] * 400_000,
    ],
    ids=["string", "long texts", "texts", "ids", "words", "maps", "numbers"],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_no_call_of_the_parser_or_writer_sees_more_than_a_piece_of_a_large_document(document, ascii_only, monkeypatch):
    seen = []

    def read(data):
        seen.append(len(data))
        return orjson.loads(data)

    def written(value):
        seen.append(len(data := orjson.dumps(value)))
        return data

    for module in (strict, strings):
        monkeypatch.setattr(
            module, "orjson", SimpleNamespace(loads=read, dumps=written, JSONDecodeError=orjson.JSONDecodeError)
        )
    data = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert len(data) > 3 * (pieces.PIECE + pieces.WINDOW)
    assert loads(data) == document
    assert max(seen) <= pieces.PIECE + pieces.WINDOW + 30_000


STARVED = """
import resource
from sie_core.api.body.json.strict import loads
from sie_core.contracts import InferenceError
body = b"[" + b",".join([b'"' + b"word " * 500 + b'"'] * 64) + b"]"
loads(body)  # what the parser makes at its first call is there
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 200_000, resource.RLIM_INFINITY))
try:
    loads(body)
except InferenceError as error:
    print(error.code)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the address space")
def test_a_body_for_which_there_is_no_memory_is_not_the_clients_fault():
    done = subprocess.run([sys.executable, "-c", STARVED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "RESOURCE_EXHAUSTED\n", "")
