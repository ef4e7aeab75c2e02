"""Pickled weights: the pinned and plain ones are converted once; every other file runs nothing and says why."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from sie_pytorch.forward import with_safetensors
from sie_pytorch.forward.checkpoint.pickles import PICKLED

from sie_core.catalog import read_card
from sie_core.contracts import Device, LoadContext, ModelConfig, ModelLoadError, PinnedFile, Profile, ResolvedModel

ROOT = Path(__file__).parents[3]


def pinned(content: bytes) -> PinnedFile:
    return PinnedFile(len(content), hashlib.sha256(content).hexdigest())


def context(folder: Path, pin: PinnedFile | None) -> LoadContext:
    config = ModelConfig("m", weights_path=str(folder), pickles={} if pin is None else {PICKLED: pin})
    model = ResolvedModel("m", config, Profile("default"))
    return LoadContext(model, Device("cpu"), "float32", weights=folder, card=read_card(folder))


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def archive(data: bytes, *, compression: int = zipfile.ZIP_STORED, parts: dict[str, bytes] | None = None) -> bytes:
    """Make an archive of torch.save's form whose pickle is `data`."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as made:
        for name, content in {"data.pkl": data, "version": b"3\n", "byteorder": b"little", **(parts or {})}.items():
            made.writestr(f"archive/{name}", content)
    return stream.getvalue()


def refused(folder: Path, content: bytes, pin: PinnedFile | None = None) -> ModelLoadError:
    """Pin the file, convert it, and return the refusal; nothing may be left behind."""
    (folder / PICKLED).write_bytes(content)
    with pytest.raises(ModelLoadError) as raised:
        with_safetensors(context(folder, pin or pinned(content)))
    assert raised.value.failure == "CORRUPT"
    assert PICKLED in str(raised.value)
    assert str(folder) not in str(raised.value)
    assert [file.name for file in folder.iterdir()] == [PICKLED]
    return raised.value


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.file}",)


def test_the_tensors_are_converted_once_and_equal(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "shared": table,
        "shared.again": table,
        "transposed": table.t(),
        "half": torch.randn(5).half(),
        "brain": torch.randn(2, 3).bfloat16(),
        "ids": torch.arange(4),
        "flags": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "none": torch.zeros(2, 0),
        "trained": torch.nn.Parameter(torch.randn(3)),
    }
    content = saved(tensors)
    (tmp_path / PICKLED).write_bytes(content)
    card = with_safetensors(context(tmp_path, pinned(content))).card
    assert card is not None
    assert card.files == ("model.safetensors", PICKLED)
    found = load_file(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        found["shared.again"] = found[file.metadata()["shared.again"]]
    assert set(found) == set(tensors)
    assert all(torch.equal(found[name], each) and found[name].dtype == each.dtype for name, each in tensors.items())


def test_a_module_s_own_dictionary_is_converted(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    content = saved(module.state_dict())  # an OrderedDict with an attribute
    (tmp_path / PICKLED).write_bytes(content)
    with_safetensors(context(tmp_path, PinnedFile(None, hashlib.sha256(content).hexdigest())))
    assert load_file(tmp_path / "model.safetensors").keys() == module.state_dict().keys()


def test_a_converted_copy_is_used_without_the_pickle_and_made_anew_for_another_pin(tmp_path: Path) -> None:
    first, second = saved({"a": torch.ones(2)}), saved({"a": torch.zeros(2)})
    (tmp_path / PICKLED).write_bytes(first)
    with_safetensors(context(tmp_path, pinned(first)))
    copy = tmp_path / "model.safetensors"
    before = copy.stat().st_mtime_ns
    (tmp_path / PICKLED).write_bytes(second)
    with_safetensors(context(tmp_path, pinned(first)))
    assert copy.stat().st_mtime_ns == before
    with_safetensors(context(tmp_path, pinned(second)))
    assert torch.equal(load_file(copy)["a"], torch.zeros(2))
    (tmp_path / PICKLED).unlink()
    assert with_safetensors(context(tmp_path, pinned(first))).card == read_card(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "model-00001-of-00002.safetensors"])
def test_safetensors_beside_a_pinned_pickle_win(tmp_path: Path, name: str) -> None:
    (tmp_path / PICKLED).write_bytes(b"never opened")
    (tmp_path / name).write_bytes(b"theirs")
    asked = context(tmp_path, pinned(b"never opened"))
    assert with_safetensors(asked) is asked
    assert (tmp_path / name).read_bytes() == b"theirs"


def test_a_pickle_that_nobody_pins_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / PICKLED).write_bytes(saved({"a": torch.ones(2)}))
    asked = context(tmp_path, None)
    assert with_safetensors(asked) is asked
    assert [file.name for file in tmp_path.iterdir()] == [PICKLED]


@pytest.mark.parametrize("size", [None, 0])
def test_a_file_with_another_hash_or_size_is_not_parsed(tmp_path: Path, size: int | None) -> None:
    content = saved({"a": torch.ones(2)})
    pin = PinnedFile(None if size is None else len(content) + 1, "0" * 64)
    error = refused(tmp_path, content, pin)
    told = f"SHA-256 {pinned(content).sha256}" if size is None else f"has {len(content)} bytes"
    assert told in str(error)
    assert "pins" in str(error)


@pytest.mark.parametrize("protocol", range(6))
def test_code_in_a_pinned_pickle_never_runs(tmp_path: Path, protocol: int) -> None:
    folder, mark = tmp_path / "m", tmp_path / "ran"
    folder.mkdir()
    data = pickle.dumps({"a": Touches(mark)}, protocol)
    for content in (archive(data), data, saved(Touches(mark))):
        said = str(refused(folder, content))
        assert any(told in said for told in ("archive of torch.save", "posix.system", "STACK_GLOBAL"))
    assert not mark.exists()


def test_what_asks_for_more_than_tensors_is_named(tmp_path: Path) -> None:
    for data, told in (
        (b"ctorch\nFloatTensor\n(J\x00\x00\x00\x7ftR.", "torch.FloatTensor"),
        (b"cbuiltins\nbytearray\n(J\x00\x00\x00\x7ftR.", "builtins.bytearray"),
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
    ):
        assert f"asks for {told}" in str(refused(tmp_path, archive(data)))


def test_cut_and_foreign_files_are_refused(tmp_path: Path) -> None:
    content = saved({"a": torch.randn(1000)})
    for each in (b"", b"PK", content[:-1], content[: len(content) // 2], b"\x80\x02}.", os.urandom(5000)):
        assert "archive" in str(refused(tmp_path, each))


def test_a_map_of_something_else_than_tensors_is_refused(tmp_path: Path) -> None:
    for value in ([torch.ones(1)], {"a": 1}, {1: torch.ones(1)}, torch.ones(2), {"a": {"b": torch.ones(1)}}):
        assert "no map of names to tensors" in str(refused(tmp_path, saved(value)))


def test_compressed_parts_and_parts_that_overlap_are_refused(tmp_path: Path) -> None:
    bomb = archive(b"}.", compression=zipfile.ZIP_DEFLATED, parts={"data/0": b"\0" * 2**24})
    assert len(bomb) < 2**17
    assert "compressed" in str(refused(tmp_path, bomb))
    assert "claim" in str(refused(tmp_path, overlapping(saved({"a": torch.ones(1000)}))))


def overlapping(content: bytes) -> bytes:
    """List the largest part of an archive a thousand times."""
    with zipfile.ZipFile(io.BytesIO(content)) as made:
        largest = max(made.infolist(), key=lambda each: each.file_size)
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as made:
        made.filelist += [largest] * 1000
        made._didModify = True  # type: ignore[attr-defined]
    return stream.getvalue()


def test_a_list_of_parts_or_a_pickle_without_end_is_refused(tmp_path: Path) -> None:
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as made:
        for number in range(40_000):
            made.writestr(zipfile.ZipInfo(f"archive/{number:030d}"), b"")
    assert "too long" in str(refused(tmp_path, many.getvalue()))
    assert "larger than allowed" in str(refused(tmp_path, archive(b"}" * (2**21 + 1))))


def test_a_tensor_larger_than_the_file_is_refused(tmp_path: Path) -> None:
    wide = torch.ones(1).expand(2**40)
    error = str(refused(tmp_path, saved({"a": wide})))
    assert "larger than the file" in error
    row = torch.arange(5000.0)
    shifted = {str(start): row[start:] for start in range(100)}
    assert "larger than the file" in str(refused(tmp_path, saved(shifted)))
    content = saved({"a": torch.ones(7)})
    assert content.count(b"K\x07") >= 1
    assert "tensors" in str(refused(tmp_path, reshaped(content)))


def reshaped(content: bytes) -> bytes:
    """Let the pickle claim a tensor of 2**40 elements over a storage of 7."""
    source, stream = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for each in source.infolist():
            data = source.read(each)
            if each.filename.endswith("data.pkl"):
                at = data.rindex(b"K\x07")
                data = data[:at] + b"\x8a\x06" + struct.pack("<q", 2**40)[:6] + data[at + 2 :]
            made.writestr(each.filename, data)
    return stream.getvalue()


def test_a_copy_that_cannot_be_written_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = saved({"a": torch.randn(100_000)})
    (tmp_path / PICKLED).write_bytes(content)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))  # as a disk that is full
    try:
        with pytest.raises(ModelLoadError, match="cannot be written") as raised:
            with_safetensors(context(tmp_path, pinned(content)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.failure == "STORAGE"
    assert [file.name for file in tmp_path.iterdir()] == [PICKLED]


def test_neither_a_large_file_nor_a_hostile_one_is_taken_into_memory(tmp_path: Path) -> None:
    """In a process of its own, whose peak is measured: 200 MB of tensors are converted, a gigabyte is not unpacked."""
    large, bomb = tmp_path / "large", tmp_path / "bomb"
    for folder in (large, bomb):
        folder.mkdir()
    torch.save({f"layer.{number}": torch.zeros(2**21) for number in range(25)}, large / PICKLED)
    with (
        zipfile.ZipFile(bomb / PICKLED, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
        made.open("archive/data.pkl", "w", force_zip64=True) as part,
    ):
        for _ in range(1024):
            part.write(b"\0" * 2**20)
    script = (
        "import hashlib, resource, sys; from pathlib import Path; from tests.pytorch.forward.test_pickles import *\n"
        "folder = Path(sys.argv[1]); found = hashlib.file_digest((folder / PICKLED).open('rb'), 'sha256').hexdigest()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: with_safetensors(context(folder, PinnedFile(None, found)))\n"
        "except ModelLoadError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    # The pages of the mapped file count too, although they can be dropped at any time.
    for folder, told, most_kilobytes in ((large, "", 250_000), (bomb, "compressed", 30_000)):
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        *said, grown = done.stdout.splitlines()
        assert told in " ".join(said)
        assert int(grown) < most_kilobytes
    assert (large / "model.safetensors").stat().st_size > 25 * 2**23
