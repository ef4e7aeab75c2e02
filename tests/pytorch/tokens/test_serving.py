"""A token classifier behind a live server, asked by our own client: the answers are those of transformers' pipeline."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.torch import load_file, save_file
from sie_kit import checks_of, failures
from sie_sdk import RequestError, ServerError, SIEClient

from tests.conftest import run_server
from tests.pytorch.tokens.support import (
    STRATEGIES,
    Reference,
    Span,
    assert_same,
    odd_texts,
    write_sentence_pieces,
    write_token_classifier,
    write_word_pieces,
)

MODELS = {"test/names": ("bert", write_word_pieces), "test/parts": ("xlm-roberta", write_sentence_pieces)}
TEXTS = odd_texts(60)
BROKEN = 90
"""Positions from here on have embeddings that are no numbers; no probe of a load is as long."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    for model, (name, tokenizer) in MODELS.items():
        write_token_classifier(name, folder / "models" / model, tokenizer=tokenizer)
    broken = write_token_classifier("bert", folder / "models/test/broken", tokenizer=write_word_pieces)
    tensors = load_file(broken / "model.safetensors")
    tensors["bert.embeddings.position_embeddings.weight"][BROKEN:] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    return {"SIE_DEFAULT_COMPUTE_PRECISION": "float32", "SIE_LOCAL_CACHE": str(folder / "cache")}


@pytest.fixture(scope="module")
def url(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    with run_server(folder, environment, [each for model in MODELS for each in ("--preload", model)]) as server:
        yield server.url


def spans(text: str, item: Any) -> list[Span]:
    assert all(each["text"] == text[each["start"] : each["end"]] != "" for each in item["entities"])
    return [Span(each["start"], each["end"], each["label"], each["score"]) for each in item["entities"]]


@pytest.mark.parametrize("model", MODELS)
def test_our_client_gets_what_the_pipeline_finds(model: str, url: str, folder: Path) -> None:
    reference = Reference(folder / "models" / model)
    for wire_format, strategy in zip(("msgpack", "json") * 3, STRATEGIES, strict=False):
        with SIEClient(url, wire_format=wire_format) as client:
            found = client.extract(model, list(TEXTS), options={"aggregation_strategy": strategy})
        for text, item in zip(TEXTS, found, strict=True):
            wanted = reference.spans if reference.fits(text) else reference.windowed
            assert_same(spans(text, item), wanted(text, strategy))


def test_labels_and_threshold_go_over_the_wire_and_wrong_ones_are_named(url: str, folder: Path) -> None:
    reference, model = Reference(folder / "models/test/names"), "test/names"
    text = next(text for text in TEXTS if reference.fits(text) and len(reference.spans(text, "simple")) > 5)
    with SIEClient(url) as client:
        found = client.extract(model, text, labels=["PER"], options={"threshold": 0.5})
        wanted = [each for each in reference.spans(text, "simple") if each.label == "PER" and each.score > 0.5]
        assert_same(spans(text, found), wanted)
        for asked, param in (
            ({"labels": ["animal"]}, "params.labels"),
            ({"options": {"aggregation_strategy": "mean"}}, "params.options.aggregation_strategy"),
            ({"options": {"threshold": 2}}, "params.options.threshold"),
            ({"instruction": "find names"}, "params.instruction"),
        ):
            with pytest.raises(RequestError) as refused:
                client.extract(model, text, **asked)
            assert (refused.value.status_code, refused.value.param) == (400, param)


def test_a_number_that_is_none_leaves_no_server(url: str) -> None:
    with SIEClient(url) as client:
        client.extract("test/broken", "fox")
        with pytest.raises(ServerError) as refused:
            client.extract("test/broken", "fox " * BROKEN, labels=["LOC"])
    assert refused.value.code == "NON_FINITE_OUTPUT"


def test_routes_for_classes_of_texts_say_that_it_has_none(url: str) -> None:
    answer = httpx.post(f"{url}/classify", json={"model": "test/names", "input": "a"}, timeout=60)
    assert answer.status_code == 400
    assert "has no classes of its own" in answer.text


def test_the_command_line_names_family_runner_and_precision(
    url: str, folder: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("sie"), "models", "show", "test/names"],
        env={**os.environ, **environment, "SIE_MODELS_DIR": str(folder / "models"), "SIE_HF_FALLBACK": "false"},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert "pytorch-tokens: its config.json names BertForTokenClassification" in done.stdout
    assert "float32" in done.stdout
    assert "encoder-loop" in done.stdout or "cpu-kernels" in done.stdout, done.stdout


@pytest.mark.parametrize("model", MODELS)
def test_each_conforms(model: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_MODELS_DIR", str(folder / "models"))
    checks = [each for each in checks_of("sie-pytorch", models=[model]) if each.part == f"model {model}"]
    assert checks
    assert not failures(checks)
