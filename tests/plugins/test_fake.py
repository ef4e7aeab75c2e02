"""The fake family: its numbers are honest, its faults are real, its record is true."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import tracemalloc
import wave
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
from sie_fake import RECORD
from sie_fake.adapter import FakeAdapter
from sie_fake.adapter import load as load_fake
from sie_fake.record import read_journal
from sie_kit.comparing import answer_alone, answer_shared

from sie_core.contracts import (
    Device,
    InvalidInput,
    Item,
    LoadContext,
    Media,
    ModelConfig,
    ModelLoadError,
    OutOfDeviceMemory,
    Profile,
    ResolvedModel,
    Task,
    Truncation,
    preempted_by,
)

TASKS = {
    "encode": {"dense": {"dim": 16, "matryoshka_dims": [4, 16]}, "sparse": {"dim": 1000}, "multivector": {"dim": 8}}
}
DENSE = Task("encode", ("dense",))


def load(
    name: str = "test/fake", device: Device | None = None, tasks=TASKS, inputs=("text",), **loadtime
) -> FakeAdapter:
    config = ModelConfig(name, weightless=True, tasks=tasks, inputs=inputs, max_sequence_length=8)
    model = ResolvedModel(name, config, Profile("default", "fake", loadtime=loadtime))
    return load_fake(LoadContext(model, device or Device("cpu"), "float32"))


def encode(adapter: FakeAdapter, *texts: str, **task) -> list[np.ndarray]:
    task = Task("encode", ("dense",), **task)
    return [output.dense for output in answer_shared(adapter, [Item(text=text) for text in texts], task)]


def wav(samples: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as clip:
        clip.setnchannels(1)
        clip.setsampwidth(2)
        clip.setframerate(16_000)
        clip.writeframes(bytes(2 * samples))
    return file.getvalue()


@pytest.fixture(autouse=True)
def _empty_record():
    RECORD.clear()


def test_a_vector_has_unit_length_and_depends_on_the_text_alone():
    one, two, again = encode(load(), "a cat", "a dog", "a cat")

    assert one.shape == (16,)
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-6)
    assert np.array_equal(one, again)
    assert not np.allclose(one, two, atol=0.1)


def test_another_process_gives_the_same_vector():
    code = "from sie_fake.outputs.vectors import dense; print(dense('héllo wörld', 16).tobytes().hex())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)

    assert done.stdout.strip() == encode(load(), "héllo wörld")[0].tobytes().hex()


def test_prompts_and_instructions_change_the_vector_and_count_as_tokens():
    adapter, item = load(), Item(text="a cat")
    tasks = [
        DENSE,
        Task("encode", ("dense",), input_type="query"),
        Task("encode", ("dense",), input_type="document"),
        Task("encode", ("dense",), instruction="find it"),
    ]

    vectors = [answer_alone(adapter, [item], task)[0].dense for task in tasks]

    assert [next(adapter.prepare([item], task)).tokens for task in tasks] == [2, 3, 3, 4]
    for position, vector in enumerate(vectors):
        for other in vectors[:position]:
            assert not np.allclose(vector, other, atol=0.1)


def test_a_long_text_is_cut_where_the_task_says_and_reports_it():
    adapter, item = load(), Item(text="0 1 2 3 4 5 6 7 8 9")
    end, start = (next(adapter.prepare([item], Task("encode", ("dense",), truncate=t))) for t in ("end", "start"))

    assert end.truncated == start.truncated == Truncation(tokens=10, kept=8)
    assert (end.tokens, end.cost) == (8, 8)
    assert end.payload.text == "0 1 2 3 4 5 6 7"
    assert start.payload.text == "2 3 4 5 6 7 8 9"
    with pytest.raises(InvalidInput, match="10 tokens and test/fake takes 8") as refused:
        list(adapter.prepare([item], Task("encode", ("dense",), truncate="error")))
    assert (refused.value.code, refused.value.param) == ("INPUT_TOO_LONG", "items[0].text")


def test_all_outputs_come_from_one_run():
    adapter = load()
    task = Task("encode", ("dense", "sparse", "multivector"))

    (output,) = answer_shared(adapter, [Item(text="a b a")], task)

    assert len(RECORD.runs()) == 1
    assert output.multivector.shape == (3, 8)
    assert np.array_equal(output.multivector[0], output.multivector[2])
    assert sorted(output.sparse.values.tolist()) == pytest.approx([np.log(2), np.log(3)])


def test_windows_of_a_text_are_units_of_their_own_and_merge_into_one_output():
    adapter, item = load(), Item(text="a b c d e")
    task = Task("encode", ("dense", "sparse", "multivector"), options={"window": 2})

    units = list(adapter.prepare([item], task))
    (output,) = answer_shared(adapter, [item], task)

    assert [unit.tokens for unit in units] == [2, 2, 1]
    assert output.multivector.shape == (5, 8)
    assert np.linalg.norm(output.dense) == pytest.approx(1, abs=1e-6)
    assert output.sparse.indices.shape == (5,)


def test_token_ids_stand_for_their_decimal_words():
    ids, words = Item(token_ids=(7, 42)), Item(text="7 42")

    one, other = answer_shared(load(), [ids, words], DENSE)

    assert np.array_equal(one.dense, other.dense)


def test_a_text_that_asks_for_nan_gets_it_and_its_neighbours_do_not():
    clean, dirty = encode(load(), "a", "[nan] b", options={"nan_text": "[nan]"})

    assert np.isfinite(clean).all()
    assert not np.isfinite(dirty).all()


@pytest.mark.parametrize(
    ("loadtime", "options"),
    [
        ({"oom_above_cost": 2}, {}),
        ({"oom_every": 1}, {}),
        ({}, {"oom_text": "c"}),
    ],
)
def test_running_out_of_memory_is_the_contracts_own_error(loadtime, options):
    adapter = load(**loadtime)
    units = list(adapter.prepare([Item(text="a b c")], Task("encode", ("dense",), options=options)))

    with pytest.raises(OutOfDeviceMemory):
        adapter.run(units)


def test_every_second_run_is_out_of_memory():
    adapter = load(oom_every=2)
    units = list(adapter.prepare([Item(text="a")], DENSE))
    outcomes = []
    for _ in range(4):
        try:
            adapter.run(units)
            outcomes.append("ran")
        except OutOfDeviceMemory:
            outcomes.append("oom")

    assert outcomes == ["ran", "oom", "ran", "oom"]


@pytest.mark.parametrize("stage", ["prepare", "run", "finish"])
def test_a_text_crashes_the_stage_it_names(stage):
    option = "crash_text" if stage == "run" else f"{stage}_crash_text"

    with pytest.raises(RuntimeError, match=f"{stage} crashed"):
        encode(load(), "a boom", options={option: "boom"})


@pytest.mark.parametrize(
    ("failure", "raised"),
    [("GATED", ModelLoadError), ("NETWORK", ModelLoadError), ("OOM", OutOfDeviceMemory), ("UNKNOWN", RuntimeError)],
)
def test_a_load_fails_as_a_real_one_of_its_class(failure, raised):
    with pytest.raises(raised) as failed:
        load(load_failure=failure)

    assert getattr(failed.value, "failure", failure) == failure
    assert not RECORD.events(kind="load")


def test_a_load_fails_as_often_as_it_should():
    for _ in range(2):
        with pytest.raises(ModelLoadError):
            load("test/twice", load_failure="NETWORK", load_failure_times=2)

    assert encode(load("test/twice", load_failure="NETWORK", load_failure_times=2), "a")


def test_a_config_without_outputs_is_refused_with_the_line_it_lacks():
    model = ResolvedModel("test/none", ModelConfig("test/none", weightless=True), Profile("default", "fake"))

    with pytest.raises(ModelLoadError, match=r"tasks: \{encode: \{dense: \{dim: 32\}\}\}") as failed:
        load_fake(LoadContext(model, Device("cpu"), "float32"))
    assert failed.value.failure == "CONFIG"


def test_a_held_run_waits_until_it_is_let_go(tmp_path):
    hold = tmp_path / "hold"
    hold.touch()
    adapter = load(run_hold=str(hold))
    units = list(adapter.prepare([Item(text="a")], DENSE))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(adapter.run, units)
        until = time.monotonic() + 30
        while not RECORD.runs():
            assert time.monotonic() < until
            time.sleep(0.001)
        assert not running.done()
        hold.unlink()
        assert len(running.result(timeout=30)) == 1


@pytest.mark.parametrize(("latency_ms", "parts"), [(12.0, 12), (60.0, 40)])
def test_a_slow_run_may_be_preempted_between_two_layers_and_in_the_middle_of_long_ones(latency_ms, parts):
    adapter, at = load(), []
    units = list(adapter.prepare([Item(text="a")], Task("encode", ("dense",), options={"latency_ms": latency_ms})))
    began = time.monotonic()
    with preempted_by(lambda: at.append(time.monotonic())):
        adapter.run(units)
    assert len(at) == parts
    assert at[-1] - began >= latency_ms / 1000


@pytest.mark.parametrize("models", [1, 2])
def test_the_emulated_accelerator_returns_before_it_is_done_and_keeps_the_order(models):
    adapter, other = (load(name, Device("fake", asynchronous=True)) for name in ("test/fake", "test/other"))
    other = adapter if models == 1 else other
    slow = list(adapter.prepare([Item(text="slow")], Task("encode", ("dense",), options={"latency_ms": 200.0})))
    fast = list(adapter.prepare([Item(text="fast")], DENSE))

    first, second = adapter.run(slow), other.run(fast)

    assert not first.done()
    assert np.array_equal(other.finish(fast, second)[0].dense, encode(load(), "fast")[0])
    assert first.done()
    adapter.unload()


def test_the_record_tells_every_run_with_its_texts_in_order(tmp_path):
    journal = tmp_path / "journal.jsonl"
    adapter = load("test/told", journal=str(journal))
    encode(adapter, "a b", "c")
    adapter.unload()

    (run,) = RECORD.runs("test/told")
    assert (run.texts, run.size, run.cost) == (("c", "a b"), 2, 3)
    assert list(read_journal(journal)) == RECORD.events("test/told")
    assert [event.kind for event in RECORD.events("test/told")] == ["load", "run", "unload"]


def test_a_journal_is_whole_under_many_threads(tmp_path):
    journal = tmp_path / "journal.jsonl"
    adapter = load(journal=str(journal))
    threads = [Thread(target=encode, args=(adapter, f"text {n}")) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert {run.texts for run in read_journal(journal) if run.kind == "run"} == {(f"text {n}",) for n in range(16)}


def test_the_readme_lists_every_switch():
    from pathlib import Path

    import sie_fake
    from sie_fake.options import OPTIONS

    readme = (Path(sie_fake.__file__).parent.parent / "README.md").read_text()
    for option in OPTIONS:
        rows = [row for row in readme.splitlines() if row.startswith("|") and f"`{option.name}`" in row]
        assert rows, f"{option.name} is not in the table"
        assert f"| {option.stage} |" in rows[0]


def test_a_score_is_the_share_of_the_query_s_words_and_the_best_window_s():
    adapter = load(tasks={"score": {}})
    items = [Item(text=text) for text in ("red fox red", "a b c d fox red", "RED")]
    task = Task("score", query=Item(text="red fox"))
    assert [output.score for output in answer_shared(adapter, items, task)] == [1.0, 1.0, 0.0]
    windowed = replace(task, options={"window": 2, "lowercase": True})
    assert [output.score for output in answer_shared(adapter, items, windowed)] == [1.0, 1.0, 0.5]


def test_a_pair_costs_both_texts_and_is_cut_to_the_limit():
    task = Task("score", query=Item(text="q q"))
    short, long = load(tasks={"score": {}}).prepare([Item(text="a b"), Item(text="a b c d e f g h")], task)
    assert (short.cost, short.tokens, short.truncated) == (4, 4, None)
    assert (long.cost, long.truncated, long.payload.text) == (8, Truncation(10, 8), "a b c d e f")


def test_what_windows_extract_is_joined_at_its_places_in_the_text():
    text = "x=1 y \t x=2  Ada-knows->Bo y x=3"
    task = Task("extract", labels=("x", "y"), output_schema={"properties": {"x": {}}}, options={"threshold": 0.0})
    adapter = load(tasks={"extract": {}})
    (whole,) = answer_shared(adapter, [Item(text=text)], task)
    (windowed,) = answer_shared(adapter, [Item(text=text)], replace(task, options={**task.options, "window": 2}))
    assert [text[entity.start : entity.end] for entity in whole.entities] == ["1", "2", "3"]
    assert (windowed.entities, windowed.relations, windowed.data) == (whole.entities, whole.relations, whole.data)
    assert windowed.data == {"x": ["1", "2", "3"]}
    assert [each.label for each in windowed.classifications] == ["y"]


def test_an_unsure_entity_is_left_out():
    adapter, items = load(tasks={"extract": {}}), [Item(text="a=one a=two a=three")]
    (everything,) = answer_shared(adapter, items, Task("extract"))
    least, *_, most = sorted(entity.score for entity in everything.entities)
    (sure,) = answer_shared(adapter, items, Task("extract", options={"threshold": most}))
    assert 0.5 <= least < most <= 1
    assert [entity.score for entity in sure.entities] == [most]


@pytest.mark.parametrize(("samples", "cost"), [(1, 1), (1600, 1), (1601, 2), (16_000, 10)])
def test_audio_costs_its_samples_by_the_chunk_rounded_up(samples, cost):
    adapter = load(inputs=("text", "audio"))
    for data in (wav(samples), bytes(2 * samples)):
        (unit,) = adapter.prepare([Item(audio=Media(data))], DENSE)
        assert (unit.cost, unit.tokens) == (cost, 0)
    (unit,) = load(inputs=("text", "audio"), audio_chunk=1).prepare([Item(text="a b", audio=Media(wav(5)))], DENSE)
    assert (unit.cost, unit.tokens) == (7, 2)


def test_an_image_costs_one_and_its_bytes_decide_the_vector():
    adapter = load(inputs=("text", "image"))
    items = [Item(images=(Media(data),)) for data in (b"one", b"two", b"one")] + [
        Item(text="a", images=(Media(b"one"),))
    ]
    assert [unit.cost for unit in adapter.prepare(items, DENSE)] == [1, 1, 1, 2]
    one, two, again, captioned = (output.dense for output in answer_shared(adapter, items, DENSE))
    assert np.array_equal(one, again)
    assert not np.allclose(one, two, atol=0.1)
    assert not np.allclose(one, captioned, atol=0.1)
    for data in (b"", b"corrupt"):
        with pytest.raises(InvalidInput) as caught:
            list(adapter.prepare([*items, Item(images=(Media(b"x"), Media(data)))], DENSE))
        assert caught.value.param == "items[4].images[1]"


def test_a_run_leaks_as_much_as_asked_for():
    tracemalloc.start()
    try:
        adapter = load(leak_bytes=1_000_000)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(3):
            encode(adapter, "a")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 3_000_000 <= after - before < 3_500_000


def test_a_fake_without_a_record_leaves_none():
    RECORD.clear()
    encode(load("test/quiet", record=False), "a")
    encode(load("test/told"), "a")
    assert {event.model for event in RECORD.events()} == {"test/told"}
