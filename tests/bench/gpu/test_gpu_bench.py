"""The GPU bench runs end to end, here on the CPU over a tiny shape, and shows what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sie_core.contracts import Device
from tests.bench.gpu import engines
from tests.bench.gpu.__main__ import hardware
from tests.bench.gpu.loads import LENGTHS, NAMES, batches, make_load
from tests.bench.gpu.measuring import ENGINE, LIBRARY, PADDED, Found, Plan, measure
from tests.bench.gpu.page import render, share
from tests.bench.gpu.passes import product_flops, tokenize
from tests.bench.gpu.shapes import BERT_BASE, BGE_M3, QWEN3, SHAPES, Shape, write_model
from tests.bench.gpu.timing import product_rate
from tests.bench.processes.environments import ROOT
from tests.sglang.conftest import write_python

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 900}
TINY_KEYS = {"num_key_value_heads": 2, "head_dim": 8}


def tiny(shape: Shape) -> Shape:
    keys = TINY_KEYS if "head_dim" in shape.fields else {}
    return replace(shape, fields={**shape.fields, **TINY, **keys})


@pytest.mark.parametrize("shape", [BERT_BASE, BGE_M3, QWEN3], ids=lambda shape: shape.name)
def test_every_text_has_the_tokens_of_its_kind(shape: Shape, tmp_path: Path) -> None:
    folder = write_model(tiny(shape), tmp_path / "model", torch.float32)
    for kind, tokens in LENGTHS.items():
        lengths = {len(row) for row in tokenize(folder, make_load(kind, 1024).texts)}
        assert lengths == {tokens - 2 + len(shape.special) - 1}
    assert max(len(row) for row in tokenize(folder, make_load("mixed", 4096).texts)) > 64


def test_products_are_counted_from_the_layers(tmp_path: Path) -> None:
    folder = write_model(tiny(BERT_BASE), tmp_path / "model", torch.float32)
    assert product_flops(folder) == 2 * 2 * (4 * 32 * 32 + 2 * 32 * 48)


def test_batches_hold_every_text_once_and_no_more_tokens_than_they_may() -> None:
    lengths = [5, 40, 3, 90, 60, 7]
    parts = batches(lengths, 100)
    assert sorted(number for part in parts for number in part) == list(range(6))
    assert all(sum(lengths[number] for number in part) <= 100 for part in parts)
    assert parts[0] == [2, 0, 1]


def test_everything_is_measured_and_shown(tmp_path: Path) -> None:
    plan = Plan(Device("cpu"), "float32", tuple(make_load(kind, 1024) for kind in NAMES), repeats=1)
    found = measure(tiny(QWEN3), plan, tmp_path)
    assert found.runners == ["encoder-loop", "packed"]
    assert not found.refused
    assert list(found.tokens_s) == ["encoder-loop", "packed", PADDED, LIBRARY, ENGINE]
    assert all(rate > 0 for rates in found.tokens_s.values() for rate in rates.values())
    assert all(set(rates) == set(NAMES) for rates in found.tokens_s.values())
    page = render([found], product_rate(plan.place, plan.dtype, 64, 2), hardware(plan))
    assert f"| SIE, whole engine (`{found.served_by}`) |" in page
    assert all(f"| runner `{name}` |" in page for name in found.runners)
    assert "bfloat16" not in page


def test_an_engine_of_its_own_is_measured_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_SGLANG_PYTHON", str(write_python(tmp_path, tmp_path, plain=True)))
    monkeypatch.setattr(engines, "LENGTHS", (16, 64))
    found = [line.split(" | ") for line in engines.rows(tiny(engines.SMALL), "cpu", "float32", 256, repeats=1)]
    names = [cells[1] for cells in found]
    assert [names[0], names[2]] == ["sentence-transformers", "SIE, sglang 0.5.23"]
    assert all(float(cell.strip(" |").replace(",", "")) > 0 for cells in found for cell in cells[2:])


def test_a_share_is_of_the_limit_and_bars_are_judged() -> None:
    rates = dict.fromkeys(NAMES, 1e6)
    speeds = {"torch-varlen": rates, PADDED: rates, LIBRARY: rates, ENGINE: {**rates, "mixed": 4e6}}
    found = Found("X", speeds, {"torch-varlen": dict.fromkeys(LENGTHS, 1.5)}, 2 * 10**8, "torch-varlen")
    assert share(found, "torch-varlen", "512", 1e15) == pytest.approx(0.2)
    facts = {"device": "a GPU", "cpu": "a CPU", "cpus": 2, "system": "Linux", "precision": "bfloat16", "versions": {}}
    page = render([found], 1e15, facts)
    assert "| X, 512 tokens: share of the matrix-product limit | ≥ 0.5 | 0.20 | ✗ |" in page
    assert "| X, mixed: whole engine over sentence-transformers | ≥ 3 | 4.00 | ✓ |" in page


def test_the_shapes_are_the_published_ones() -> None:
    assert set(SHAPES) == {"BERT-base", "BGE-M3", "Qwen3-0.6B"}


def test_the_quick_run_goes_on_after_a_failed_part_and_says_which(tmp_path: Path) -> None:
    (tmp_path / "loops.json").mkdir()  # where the part wants to write
    sizes = ["--device", "cpu", "--shape", "tiny", "--seconds", "0.2", "--tokens", "1024"]
    command = [sys.executable, "-m", "tests.bench.gpu.quick", "--out", str(tmp_path), *sizes]
    ran = subprocess.run([*command, "--parts", "loops", "profile"], cwd=ROOT, timeout=280, check=False)
    report = (tmp_path / "report.md").read_text()
    assert "- loops: exit code 1," in report
    assert "- profile: done," in report
    assert ran.returncode == 1
    for clients in (1, 256):
        assert "MainThread" in json.loads((tmp_path / f"threads-{clients}.json").read_text())["threads"]
    assert "10 passes of one text of 16 tokens" in (tmp_path / "launches.txt").read_text()
