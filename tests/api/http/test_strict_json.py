import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sie_core.api.body.strict_json import loads
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


@pytest.mark.parametrize("data", [b"", b"{", b'"\xff"', b'"\\ud800"', b"NaN", b"[1e999]", b"{}x", b"{'a':1}"])
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


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ('{"ä": ["é", 1, 2, x]}'.encode(), "line 1, column 19:"),
        (b'{"a": 1,\n "b": 2,\n   x}', "line 3, column 4:"),
        (b'{"a": 1,\n "b": "\xc3\xa9\xff", "c": [1, 2]}', "line 2, column 9: str is not valid UTF-8"),
        (b'{"a": ["%s", x]}' % ("é日\U0001f600" * 80_000).encode(), "line 1, column 240012:"),
    ],
)
def test_the_place_of_a_mistake_counts_characters(data: bytes, place: str) -> None:
    with pytest.raises(InferenceError, match=place):
        loads(memoryview(data))


STARVED = """
import resource
from sie_core.api.body.strict_json import loads
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
    done = subprocess.run([sys.executable, "-c", STARVED], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "RESOURCE_EXHAUSTED\n", "")
