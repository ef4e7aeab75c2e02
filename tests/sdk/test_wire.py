"""The codec: golden bytes, what is refused and why, what decoding gives."""

from __future__ import annotations

import datetime
import subprocess
import sys
from weakref import WeakSet

import msgpack
import numpy as np
import pytest
from sie_sdk import wire
from sie_sdk.wire import WireError


class Subclass(np.ndarray):
    pass


GOLDEN_ARRAY = bytes.fromhex(
    "85 c4026e64 c3 c40474797065 a33c6634 c4046b696e64 c400 c4057368617065 920103 c40464617461"
    "c40c 00000000 0000803f 00000040"
)
GOLDEN_SCALAR = bytes.fromhex("83 c4026e64 c2 c40474797065 a33c6634 c40464617461 c404 0000c03f")


def array_map(**changes: object) -> bytes:
    fields: dict[bytes, object] = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": bytes(8)}
    fields |= {name.encode(): value for name, value in changes.items()}
    return msgpack.packb({name: value for name, value in fields.items() if value is not ...})


def test_an_array_is_packed_to_the_golden_bytes():
    assert wire.pack(np.array([[0, 1, 2]], np.float32)) == GOLDEN_ARRAY


def test_a_scalar_is_packed_to_the_golden_bytes():
    assert wire.pack(np.float32(1.5)) == GOLDEN_SCALAR
    assert wire.unpack(GOLDEN_SCALAR) == np.float32(1.5)


def test_an_unpacked_array_is_a_read_only_view_of_its_bytes():
    array = wire.unpack(GOLDEN_ARRAY)
    assert isinstance(array, np.ndarray)
    assert not array.flags.writeable
    assert not array.flags.owndata
    np.testing.assert_array_equal(array, np.array([[0, 1, 2]], np.float32))


def test_the_kind_may_be_empty_text_or_absent():
    for kind in ("", b"", ...):
        assert wire.unpack(array_map(kind=kind)).shape == (2,)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.arange(10, dtype=np.uint32)[::-2],
        np.arange(4, dtype=">i8"),
        np.zeros((3, 0, 2), np.float16),
        np.array(7, np.int8),
        np.array([True, False]),
        np.ones(3).view(Subclass),
        np.zeros((1,) * 8, np.uint8),
    ],
)
def test_arrays_of_every_layout_come_back_equal(array):
    back = wire.unpack(wire.pack(array))
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, np.asarray(array))


def test_arrays_are_never_packed_as_lists():
    packed = wire.pack({"values": np.zeros(1000, np.float32)})
    assert len(packed) < 4000 + 100


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.array([1j]), "complex128"),
        (np.array(["text"]), "<U4"),
        (np.array([object()]), "object"),
        (np.zeros((1,) * 9), "9 dimensions"),
        (np.datetime64("2020-01-01"), "datetime64"),
        ({1, 2}, "set"),
        (datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "datetime"),
        (2**64, "more than 64 bits"),
        ("\ud800", "surrogates"),
    ],
)
def test_what_has_no_form_on_the_wire_is_refused_when_packed(value, said):
    with pytest.raises(WireError, match=said):
        wire.pack({"a": [value]})


def test_a_value_that_holds_itself_is_refused_when_packed():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(WireError):
        wire.pack(endless)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"type": "<c8"}, "`type` is '<c8'"),
        ({"type": "O"}, "`type` is 'O'"),
        ({"type": b"<f4"}, "`type`"),
        ({"type": "f4"}, "`type`"),
        ({"kind": b"V"}, "kind"),
        ({"complex": True}, "keys"),
        ({"extra": 1}, "keys"),
        ({"data": ...}, "keys"),
        ({"shape": ...}, "keys"),
        ({"shape": [3]}, "shape"),
        ({"shape": [-2]}, "non-negative"),
        ({"shape": [True, 2]}, "non-negative"),
        ({"shape": [2.0]}, "non-negative"),
        ({"shape": 2}, "non-negative"),
        ({"shape": [1] * 9}, "8"),
        ({"shape": [2**40, 2**40, 0], "data": b""}, "impossible shape"),
        ({"data": "abcdefgh"}, "binary"),
        ({"data": bytes(7)}, "7 bytes"),
        ({"nd": 1}, "nd"),
        ({"nd": False}, "keys"),
    ],
)
def test_an_array_whose_parts_contradict_each_other_is_refused(changes, said):
    with pytest.raises(WireError, match=said):
        wire.unpack(msgpack.packb([msgpack.unpackb(array_map(**changes))]))


def test_str_keys_make_a_plain_map_of_an_array():
    fields = {"nd": True, "type": "<f4", "shape": [1], "data": bytes(4)}
    assert wire.unpack(msgpack.packb(fields)) == fields


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not valid msgpack"),
        (b"\x92\x01", "incomplete"),
        (b"\x01\x02", "1 bytes follow"),
        (b"\xc1", "no msgpack value"),
        (b"\xa1\xff", "UTF-8"),
        (b"\xd6\xff\x00\x00\x00\x00", "max_ext_len"),
        (msgpack.packb(msgpack.ExtType(5, b"")), "extension type 5"),
        (msgpack.packb(msgpack.ExtType(5, b"x")), "max_ext_len"),
        (b"\xc7\x00\xff", "timestamp"),
        (b"\x81\x01\xc0", "map key"),
        (b"\x81\x90\xc0", "map key"),
        (b"\x81\xc4\x01x\xc0", "binary"),
        (b"\xdd\xff\xff\xff\xff", "max_array_len"),
        (b"\xdf\xff\xff\xff\xff", "max_map_len"),
        (msgpack.packb([None] * (wire.MAX_LENGTH + 1)), "max_array_len"),
        (b"\x91" * (wire.MAX_DEPTH + 1) + b"\xc0", "deeper"),
        (b"\x81\xa1k" * (wire.MAX_DEPTH + 1) + b"\xc0", "deeper"),
        (b"\x91" * 5000 + b"\xc0", "deeper"),
    ],
)
def test_a_malformed_message_is_refused_with_its_reason(data, said):
    with pytest.raises(WireError, match=said):
        wire.unpack(data)


def test_the_deepest_and_the_longest_allowed_are_read():
    assert wire.unpack(b"\x91" * (wire.MAX_DEPTH - 1) + b"\x90")
    assert len(wire.unpack(msgpack.packb([None] * wire.MAX_LENGTH))) == wire.MAX_LENGTH


def test_what_was_packed_is_read_whatever_its_length():
    """A text may hold more entities than a request may have entries."""
    for long in ([1] * (wire.MAX_LENGTH + 1), {str(number): None for number in range(wire.MAX_LENGTH + 1)}):
        assert wire.unpack(wire.pack({"long": long}), longest=None) == {"long": long}
        with pytest.raises(wire.WireError, match="max_"):
            wire.unpack(wire.pack({"long": long}))
    values = np.zeros((wire.MAX_LENGTH + 1, 1), dtype=np.uint8)
    assert wire.unpack(wire.pack(values)).shape == values.shape


def test_a_list_that_claims_more_than_the_message_holds_is_refused_at_once():
    for claim in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdd\x00\x00\x01\x00" * 100):
        with pytest.raises(wire.WireError):
            wire.unpack(claim, longest=None)


def test_a_short_body_that_claims_much_costs_little():
    claims = (b"\xdd" + wire.MAX_LENGTH.to_bytes(4, "big")) * 1000 + bytes(wire.MAX_LENGTH)
    script = (
        "import resource, sys; from sie_sdk import wire\n"
        "data = sys.stdin.buffer.read()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: wire.unpack(data)\n"
        "except wire.WireError: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    run = subprocess.run([sys.executable, "-c", script], input=claims, capture_output=True, check=True, timeout=250)
    assert int(run.stdout) < 256 * 1024  # KiB


def test_every_buffer_is_read():
    for kind in (bytes, bytearray, memoryview):
        assert wire.unpack(kind(b"\x91\xa1a")) == ["a"]


def test_media_travel_as_binary():
    packed = wire.pack({"data": b"\x00\xff", "more": bytearray(b"x")})
    assert wire.unpack(packed) == {"data": b"\x00\xff", "more": b"x"}


def test_items_are_spliced_in_as_if_packed_with_their_map():
    items = [{"id": str(place), "dense": {"values": np.full(3, place, np.float32)}} for place in range(300)]
    head = {"model": "m", "timing": {"total_ms": 1.5}}
    assert wire.pack_with_items(head, [wire.pack(item) for item in items]) == wire.pack({**head, "items": items})
    assert wire.pack_with_items({}, [], key="rows") == wire.pack({"rows": []})


def test_a_head_may_not_have_the_key_of_the_items():
    with pytest.raises(WireError, match="'items'"):
        wire.pack_with_items({"items": 1}, [])


@pytest.mark.parametrize(("module", "loads"), [("wire", {"msgpack", "numpy"}), ("errors", set()), ("types", {"numpy"})])
def test_a_leaf_loads_its_own_needs_and_no_more(module, loads):
    script = (
        f"import sys; before = set(sys.modules); import sie_sdk.{module}\n"
        "for name in set(sys.modules) - before:\n"
        "    if 'site-packages' in (getattr(sys.modules[name], '__file__', None) or ''): print(name.partition('.')[0])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=250)
    assert set(run.stdout.split()) == loads


@pytest.mark.parametrize("value", [[[]] * 9, [{"a": 1}] * 4, {str(key): 0 for key in range(5)}, [1] * 10])
def test_a_reader_may_bound_how_many_values_a_message_holds(value):
    message = wire.pack([value, "x" * 99])
    assert wire.unpack(message, most=14) == [value, "x" * 99]
    with pytest.raises(wire.WireError, match="more than 10 values"):
        wire.unpack(message, most=10)


@pytest.mark.parametrize("entries", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"a": [1, "b", {"c": [1, 2, 3, 4]}], "d": None, "e": []},
        {"id": "x", "array": np.arange(3), "entities": [{"text": str(n), "score": n / 7} for n in range(40)], "z": "z"},
    ],
)
def test_a_map_packed_in_parts_is_the_same_bytes(fields, entries):
    assert wire.pack_in_parts(fields, entries) == wire.pack(fields)


@pytest.mark.parametrize("entries", [3, 100])
def test_entries_that_are_made_as_they_are_packed_are_never_all_there(entries):
    alive: WeakSet[Entry] = WeakSet()
    most = []

    class Entry(dict):
        __hash__ = object.__hash__

    def make(number):
        entry = Entry(n=number)
        alive.add(entry)
        most.append(len(alive))
        return entry

    packed = wire.pack_in_parts({"a": wire.Made(range(40), make), "b": wire.Made((), make), "c": [1]}, entries)
    assert packed == wire.pack({"a": [{"n": number} for number in range(40)], "b": [], "c": [1]})
    assert max(most) <= 2 * entries


def test_what_cannot_be_packed_is_refused_in_parts_too():
    with pytest.raises(WireError, match="object cannot be packed"):
        wire.pack_in_parts({"a": [1, 2, object()]}, 2)


def test_values_packed_with_one_buffer_are_those_packed_alone() -> None:
    values = [{"text": "a"}, [1, 2.5, None], {"v": np.arange(3, dtype=np.float32)}, "é" * 300]
    assert wire.pack_each(values) == [wire.pack(value) for value in values]


def test_a_value_that_cannot_be_packed_among_several_is_refused() -> None:
    with pytest.raises(wire.WireError, match="set cannot be packed"):
        wire.pack_each([{"text": "a"}, {"tags": {1, 2}}])
    with pytest.raises(wire.WireError, match="more than 64 bits"):
        wire.pack_each([1, 2**64])


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (2**9, 2**9), (2**20 + 1,)])
@pytest.mark.parametrize("dtype", ["float32", ">f4", "int8"])
def test_a_map_packed_with_its_arrays_apart_is_the_same_bytes(shape, dtype):
    array = np.ones(shape, dtype)
    fields = {"id": "x", "multivector": {"dims": 2, "values": array, "turned": array.T}, "more": [array], "z": {}}
    fields["images"] = [{"data": bytes(size)} for size in (0, 2**20 - 1, 2**20)]
    packed = wire.pack_with_arrays(fields)
    assert packed == wire.pack(fields)
    assert packed.readonly


def test_what_cannot_be_packed_is_refused_with_arrays_apart_too():
    with pytest.raises(WireError, match="object cannot be packed"):
        wire.pack_with_arrays({"a": {"b": object()}})
