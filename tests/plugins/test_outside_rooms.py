"""A head and a family written outside the tree, in few lines on public names: installed by pip, served, conforming."""

from __future__ import annotations

import ast
import configparser
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sie_sdk import SIEClient
from transformers import AutoModel, AutoTokenizer

from tests.plugins.outside import DATA, environment, run, server
from tests.pytorch.models import HIDDEN, write_checkpoint
from tests.text.tables import DIMS, WORDS, table, write_tokenizer
from tests.text.tables import TEXTS as WORD_TEXTS

ROOT = Path(__file__).parents[2]
LISTS = ("plugins", "plugins-of-pytorch", "plugins-of-text")
MOODS = ("calm", "cross", "merry")
TEXTS = ["the lazy dog jumps", "a query is short", "the index keeps what it has read " * 5]
MODELS = {"head": "test/moods", "static": "test/words"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of each: an encoder with a layer of moods beside it, and a table of words."""
    folder = tmp_path_factory.mktemp("models")
    moods = write_checkpoint("bert", folder / MODELS["head"])
    config = json.loads((moods / "config.json").read_text())
    (moods / "config.json").write_text(json.dumps({**config, "architectures": ["MoodModel"], "moods": MOODS}))
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(len(MOODS), HIDDEN, generator=generator), torch.randn(len(MOODS), generator=generator)
    save_file({"weight": weight, "bias": bias}, moods / "mood.safetensors")
    words = folder / MODELS["static"]
    write_tokenizer(words)
    np.save(words / "words.npy", table())
    (words / "config.json").write_text(json.dumps({"architectures": ["WordTable"]}))
    return folder


@pytest.fixture(scope="module")
def variables(install: Callable[..., Path], models: Path) -> dict[str, str]:
    """The environment of a shell with both distributions installed."""
    chosen = {"SIE_MODELS_DIR": str(models), "SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu"}
    return environment(install("outside_head", "outside_static"), SIE_DEFAULT_COMPUTE_PRECISION="float32", **chosen)


@pytest.fixture(scope="module")
def url(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(["--preload", ",".join(MODELS.values())], tmp_path_factory.mktemp("server"), variables) as address:
        yield address


@pytest.mark.parametrize(("package", "most"), [("outside_head", 60), ("outside_static", 80)])
def test_it_has_few_lines_and_imports_public_names_alone(package: str, most: int) -> None:
    sources = [file.read_text() for file in (DATA / package).rglob("*.py")]
    assert sum(len(source.splitlines()) for source in sources) <= most
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    allowed = [contracts[f"importlinter:contract:{name}"]["ignore_imports"].split("\n") for name in LISTS]
    public = {line.removeprefix("** -> ") for lines in allowed for line in lines}
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("sie_") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sie_"):
            assert node.module in public
            module = import_module(str(node.module))
            exported = getattr(module, "__all__", vars(module))
            assert {alias.name for alias in node.names} <= set(exported), f"{node.module} does not export them"


def test_the_head_gives_the_classes_of_its_own_weights(url: str, models: Path) -> None:
    body = {"items": [{"text": text} for text in TEXTS]}
    answer = httpx.post(f"{url}/v1/extract/{MODELS['head']}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert httpx.get(f"{url}/v1/models/{MODELS['head']}", timeout=60).json()["classes"] == list(MOODS)
    found = [{each["label"]: each["score"] for each in item["classifications"]} for item in answer.json()["items"]]
    folder = models / MODELS["head"]
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    layer = load_file(folder / "mood.safetensors")
    for text, moods in zip(TEXTS, found, strict=True):
        with torch.inference_mode():
            states = model(**tokenizer(text, truncation=True, max_length=96, return_tensors="pt")).last_hidden_state[0]
        scores = (states.mean(dim=0) @ layer["weight"].T + layer["bias"]).softmax(dim=0)
        assert moods == pytest.approx(dict(zip(MOODS, scores.tolist(), strict=True)), abs=1e-5)
        assert list(moods.values()) == sorted(moods.values(), reverse=True)


def test_the_family_sums_the_vectors_of_words(url: str) -> None:
    with SIEClient(url) as client:
        sums = client.encode(MODELS["static"], WORD_TEXTS)
        units = client.encode(MODELS["static"], WORD_TEXTS, options={"normalize": True})
        (first,) = client.encode(MODELS["static"], ["a b c"], options={"max_seq_length": 1})
    for text, whole, unit in zip(WORD_TEXTS, sums, units, strict=True):
        words = re.findall(r"\w+|[^\w\s]+", text.lower())
        expected = sum((table()[WORDS.index(word) if word in WORDS else 0] for word in words), np.zeros(DIMS))
        assert whole["dense"] == pytest.approx(expected, abs=1e-6)
        assert unit["dense"] == pytest.approx(expected / (np.linalg.norm(expected) or 1), abs=1e-6)
    assert first["dense"] == pytest.approx(table()[WORDS.index("a")])


def test_the_family_loads_in_a_process_without_torch(variables: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys; from sie_core.defaults import BUILTINS; from sie_core.plugins import discover\n"
        "from sie_core.settings import load_settings; from sie_kit import load_model\n"
        "settings = load_settings()\n"
        f"print(load_model({MODELS['static']!r}, discover(settings, BUILTINS), settings).family.id, *sys.modules)"
    )
    done = run([sys.executable, "-c", code], tmp_path, {**variables, "SIE_PLUGINS": "words"})
    assert done.returncode == 0, done.stderr
    family, *modules = done.stdout.split()
    assert family == "words"
    assert not {"torch", "transformers", "sie_pytorch"} & set(modules)


def test_the_kit_finds_them_conforming(variables: dict[str, str], models: Path, tmp_path: Path) -> None:
    folder = f"models_dir=Path({str(models)!r})"
    lines = [f'test_{kind} = conformance("sie-test-outside-{kind}", {folder})\n' for kind in MODELS]
    imports = "from pathlib import Path\n\nfrom sie_kit import conformance\n\n"
    (tmp_path / "test_them.py").write_text(imports + "".join(lines))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_them.py"]
    done = run(command, tmp_path, variables)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 30
