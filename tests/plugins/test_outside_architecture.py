"""An encoder that transformers lacks, written outside the tree: on the fast runners, proven, adapted, verified."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import peft
import pytest
import torch
import transformers as tf
import yaml
from sie_cpu.plugin import sie_runners
from sie_flash.plugin import VARLEN_LOOP
from sie_pytorch.forward import INTERFACE, BuiltRunner, build_runner
from sie_pytorch.forward.specs import RUNNERS
from sie_sdk import SIEClient

from sie_core.contracts import Device, ModelCard, RunnerSpec
from tests.plugins.outside import DATA, SIE, environment, run, server
from tests.pytorch.forward.support import LONG, TOLERANCE, deviation, forward, packed_batch, padded_states
from tests.pytorch.models import DECODER, WINDOW, randomise
from tests.pytorch.tokenizers import write_tokenizer

PACKAGE = DATA / "outside_architecture"
NAME, MODEL = "sie_test_outside_architecture", "test/wren"
TEXTS = ["the lazy dog jumps", "a query is short", "the index keeps what it has read " * 9]
PUBLISHED = {"hidden_size": "width", "num_attention_heads": "heads", "intermediate_size": "inner"}
EVERY = (*RUNNERS, *sie_runners())
VARLEN = RunnerSpec("varlen-loop", INTERFACE, "tests.flash.plain:PlainLoop", features=VARLEN_LOOP.features)
"""The loop of sie-flash, with a kernel that needs no GPU."""


@pytest.fixture(scope="module")
def package() -> Iterator[Any]:
    """The module of the distribution, as its users import it."""
    sys.path.insert(0, str(PACKAGE))
    yield import_module(NAME)
    sys.path.remove(str(PACKAGE))


@pytest.fixture(scope="module")
def folder(package: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint under its published names, which only the translation understands."""
    classes, folder = import_module(f"{NAME}.model"), tmp_path_factory.mktemp("models") / MODEL
    fields = {name: value for name, value in DECODER.items() if name != "num_key_value_heads"}
    model = classes.WrenModel(classes.WrenConfig(**fields, sliding_window=WINDOW - 1))
    randomise(model, 0)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    written = {PUBLISHED.get(name, name): value for name, value in config.items()}
    (folder / "config.json").write_text(json.dumps(written))
    write_tokenizer("bert", folder)
    torch.manual_seed(1)
    lora = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["qkv", "out", "up_proj", "down_proj"]))
    with torch.no_grad():
        for name, weight in lora.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.3)
    lora.save_pretrained(str(folder.parent / "lora"))
    config = {
        "sie_id": MODEL,
        "weights_path": str(folder),
        "loras": {"birds": {"weights_path": str(folder.parent / "lora")}},
    }
    (folder.parents[1] / "wren.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="module")
def variables(install: Callable[..., Path], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell with the distribution installed."""
    chosen = {"SIE_MODELS_DIR": str(folder.parents[1]), "SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu"}
    cache = str(tmp_path_factory.mktemp("cache"))
    site = install("outside_architecture")
    return environment(site, SIE_DEFAULT_COMPUTE_PRECISION="float32", SIE_LOCAL_CACHE=cache, **chosen)


@pytest.fixture(scope="module")
def url(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(["--preload", MODEL], tmp_path_factory.mktemp("server"), variables) as address:
        yield address


def test_record_class_and_translation_have_at_most_60_lines() -> None:
    lines = [line for file in (PACKAGE / NAME).glob("*.py") for line in file.read_text().splitlines() if line.strip()]
    assert len(lines) <= 60


def reference(folder: Path, *, adapted: bool = False) -> Any:
    """Load its own class, with PEFT's adapter if asked for."""
    classes = import_module(f"{NAME}.model")
    config = json.loads((folder / "config.json").read_text())
    named = {ours: config[theirs] for ours, theirs in PUBLISHED.items()}
    model = classes.WrenModel.from_pretrained(folder, config=classes.WrenConfig(**{**config, **named})).eval()
    return peft.PeftModel.from_pretrained(model, str(folder.parent / "lora")).eval() if adapted else model


@torch.inference_mode()
def vectors(model: Any, folder: Path) -> np.ndarray:
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    rows = (tokenizer(text, return_tensors="pt") for text in TEXTS)
    return np.stack([model(input_ids=row.input_ids).last_hidden_state[0].mean(dim=0).numpy() for row in rows])


def test_it_is_served_by_a_fast_runner_with_its_adapters(url: str, folder: Path) -> None:
    with SIEClient(url) as client:
        plain = np.stack([each["dense"] for each in client.encode(MODEL, TEXTS)])
        adapted = np.stack([each["dense"] for each in client.encode(MODEL, TEXTS, options={"lora": "birds"})])
    notes = httpx.get(f"{url}/v1/models/{MODEL}", timeout=60).json()["notes"]
    assert notes["runner"] in {"cpu-kernels", "encoder-loop"}
    assert notes["family"].startswith("it is a plain wren encoder")
    for found, adapts in ((plain, False), (adapted, True)):
        expected = vectors(reference(folder, adapted=adapts), folder)
        assert np.abs(found - expected).max() <= 2 * TOLERANCE * expected.std()
    assert np.abs(plain - adapted).max() > 0.1


def test_it_is_verified_against_its_own_class(variables: dict[str, str], tmp_path: Path) -> None:
    done = run([SIE, "verify", MODEL], tmp_path, variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("verified: ")


def test_the_kit_finds_it_conforming(variables: dict[str, str], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from pathlib import Path\n\nfrom sie_kit import conformance\n\n"
        f'test_it = conformance("sie-test-outside-architecture", models=["{MODEL}"], '
        f"models_dir=Path({str(folder.parents[1])!r}))\n"
    )
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"], tmp_path, variables)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) >= 12


def test_without_the_distribution_nobody_knows_it(variables: dict[str, str], tmp_path: Path) -> None:
    known = [
        "it is a plain wren encoder" in run([SIE, "models", "show", MODEL], tmp_path, {**variables, **more}).stdout
        for more in ({}, {"SIE_PLUGINS_BLOCKED": "wren"})
    ]
    assert known == [True, False]


def test_its_plugin_lists_it(variables: dict[str, str], tmp_path: Path) -> None:
    listed = run([SIE, "plugins"], tmp_path, variables).stdout
    assert "    architectures: wren\n" in listed


def built(folder: Path, package: Any, specs: Any = EVERY, **layers: Any) -> BuiltRunner:
    """Build a runner by the record, or one with other layers."""
    (record,) = package.sie_architectures()
    record = replace(record, layers=replace(record.layers, **layers))
    config = json.loads((folder / "config.json").read_text())
    card = ModelCard(folder, config, records={record.name: record})
    return build_runner(folder, card, Device("cpu"), "float32", runner_specs=specs)


@pytest.mark.parametrize("runner", ["cpu-kernels", "encoder-loop", "varlen-loop", "packed", "padded"])
def test_every_runner_gives_what_its_class_gives(runner: str, folder: Path, package: Any) -> None:
    found = built(folder, package, [spec for spec in (*EVERY, VARLEN) if spec.name == runner])
    assert found.info.name == runner, found.info.reason
    batch = packed_batch(LONG)
    expected = padded_states(reference(folder), batch)
    assert deviation(forward(found, batch), expected) <= TOLERANCE
    alone = torch.cat([forward(found, batch.one(place)) for place in batch.places])
    assert deviation(alone, expected) <= TOLERANCE


WRONG = {
    "a window of one less": {"window_beyond": 0},
    "no window": {"window": None},
    "another rotation": {"rotary": "interleaved"},
    "weights of norms from one": {"norm": "rms from one"},
    "gate and up exchanged": {"up": ("mlp.gate_proj", "mlp.up_proj")},
    "causal": {"causal": True},
    "norms exchanged": {"query_norm": "k_norm", "key_norm": "q_norm"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_record_is_refused_by_the_proof(wrong: str, folder: Path, package: Any) -> None:
    info = built(folder, package, **WRONG[wrong]).info
    assert info.name == "packed"
    for name in ("cpu-kernels", "encoder-loop"):
        assert f"not {name}: its states differ from each sequence alone by" in info.reason


def test_a_runner_without_one_of_its_features_is_not_tried(folder: Path, package: Any) -> None:
    loop, packed = (next(spec for spec in RUNNERS if spec.name == name) for name in ("encoder-loop", "packed"))
    less = replace(loop, features=loop.features - {"norms of queries and keys"})
    assert built(folder, package, [less, packed]).info.reason.startswith("equals")
    less = replace(loop, features=loop.features - {"attention windows"})
    reason = built(folder, package, [less, packed]).info.reason
    assert "its layers have attention windows, which this runner does not compute" in reason
