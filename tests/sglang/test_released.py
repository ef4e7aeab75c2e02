"""What this plugin uses of sglang is in its release: routes, fields, arguments, classes, read from the sources."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sie_sglang.claims import EMBEDDERS, RERANKERS
from sie_sglang.engine import Launch
from sie_sglang.engine.launch import LORA_TARGETS
from sie_sglang.loras import IGNORED
from sie_sglang.options import ENGINE_OPTIONS

from tests.sglang.released import released_wheel

SRT = "sglang/srt/"
PROTOCOL = f"{SRT}entrypoints/openai/protocol.py"
MESSAGE_FILE = f"{SRT}managers/io_struct.py"
SCHEDULER = f"{SRT}managers/scheduler.py"
LORA_FOLDER = f"{SRT}lora/"
SERVER = f"{SRT}entrypoints/http_server.py"
EMBEDDING = f"{SRT}entrypoints/openai/serving_embedding.py"
CHOICES = f"{SRT}arg_groups/choices.py"
FIELDS = {
    "EmbeddingRequest": {"input", "encoding_format", "lora_path", "rid"},
    "EmbeddingObject": {"index", "embedding"},
    "EmbeddingResponse": {"data"},
    "ScoringRequest": {"query", "items", "label_token_ids", "return_token_logprobs"},
    "ScoringResponse": {"token_logprobs"},
}
MESSAGES = {
    "BaseReq": {"rid"},
    "LoadLoRAAdapterReqInput": {"lora_name", "lora_path"},
    "UnloadLoRAAdapterReqInput": {"lora_name"},
}
ROUTES = {"/abort_request", "/health", "/load_lora_adapter", "/unload_lora_adapter", "/v1/embeddings", "/v1/score"}
FLAGS = {"config"}
"""Arguments that are no field of the arguments' groups."""


class Sources:
    """Files of the wheel, perhaps with one of them changed."""

    def __init__(self, wheel: Path, change: Callable[[str, str], str] = lambda name, text: text) -> None:
        self._archive, self._change = zipfile.ZipFile(wheel), change

    def text(self, name: str) -> str:
        return self._change(name, self._archive.read(name).decode())

    def names(self, folder: str) -> list[str]:
        return [name for name in self._archive.namelist() if name.startswith(folder) and name.endswith(".py")]


@pytest.fixture(scope="module")
def wheel() -> Path:
    return released_wheel()


def missing(sources: Sources) -> set[str]:
    """Name what is not there, with the part of ours that uses it."""
    return {*missing_fields(sources), *missing_routes(sources), *missing_arguments(sources), *missing_classes(sources)}


def missing_fields(sources: Sources) -> Iterator[str]:
    classes = {
        node.name: node
        for file in (PROTOCOL, MESSAGE_FILE)
        for node in ast.walk(ast.parse(sources.text(file)))
        if isinstance(node, ast.ClassDef)
    }
    for name, wanted in {**FIELDS, **MESSAGES}.items():
        there = {
            each.target.id
            for each in classes[name].body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        yield from (f"{name}.{field}, which the adapters use" for field in wanted - there)


def missing_routes(sources: Sources) -> Iterator[str]:
    texts = {
        node.value
        for node in ast.walk(ast.parse(sources.text(SERVER)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    yield from (f"the route {route}, which Engine asks" for route in ROUTES - texts)


def missing_arguments(sources: Sources) -> Iterator[str]:
    there = {
        each.target.id.replace("_", "-")
        for name in sources.names(f"{SRT}arg_groups/fields/")
        for each in ast.walk(ast.parse(sources.text(name)))
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    launch = Launch(
        "python",
        "m",
        Path("w"),
        "cuda",
        1,
        "bfloat16",
        8,
        8,
        {each.name: 1 for each in ENGINE_OPTIONS},
        True,
        lora_rank=8,
    )
    ours = {word.removeprefix("--").partition("=")[0] for word in launch.command("h", 1, Path("c")) if word[:2] == "--"}
    yield from (f"the argument --{name}, which Launch gives" for name in ours - there - FLAGS)
    choices = {
        node.targets[0].id: set(ast.literal_eval(node.value))
        for node in ast.parse(sources.text(CHOICES)).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.List)
    }
    for option, known in (("quantization", "QUANTIZATION_CHOICES"), ("attention_backend", "ATTENTION_BACKEND_CHOICES")):
        allowed = next(each.choices for each in ENGINE_OPTIONS if each.name == option)
        yield from (f"{option}={value}, which ENGINE_OPTIONS allows" for value in set(allowed) - choices[known])


def missing_classes(sources: Sources) -> Iterator[str]:
    there: set[str] = set()
    known = EMBEDDERS | RERANKERS
    for name in sources.names(f"{SRT}models/"):
        text = sources.text(name)
        if not any(wanted in text for wanted in known):
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
                there |= {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    yield from (f"the class {name}, which is claimed" for name in known - there)


def test_all_that_is_used_is_in_the_release(wheel: Path) -> None:
    assert missing(Sources(wheel)) == set()


def test_base64_is_float32_in_little_endian(wheel: Path) -> None:
    assert 'struct.pack(f"<{len(embedding)}f"' in Sources(wheel).text(EMBEDDING)


def test_an_abort_is_for_every_id_that_begins_with_the_given_one(wheel: Path) -> None:
    assert "or req.rid.startswith(recv_req.rid)" in Sources(wheel).text(SCHEDULER)


def test_the_scale_of_an_adapter_is_alpha_over_rank_alone(wheel: Path) -> None:
    sources = Sources(wheel)
    assert "self.scaling: float = self.config.lora_alpha / self.config.r" in sources.text(f"{LORA_FOLDER}lora.py")
    texts = [sources.text(name) for name in sources.names(LORA_FOLDER)]
    assert not any(field in text for text in texts for field in IGNORED), "then adapters with it can be served"


def test_the_layers_that_adapters_may_change_are_ones_it_knows(wheel: Path) -> None:
    (known,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(Sources(wheel).text(f"{SRT}utils/common.py")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SUPPORTED_LORA_TARGET_MODULES"
    )
    assert set(LORA_TARGETS) <= set(known)


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (PROTOCOL, "    encoding_format: str", "    format: str", "EmbeddingRequest.encoding_format, which"),
        (SERVER, '"/v1/embeddings"', '"/v2/embeddings"', "the route /v1/embeddings, which"),
        (f"{SRT}arg_groups/fields/schedule.py", "max_total_tokens:", "most_tokens:", "the argument --max-total-tokens"),
        (f"{SRT}models/qwen3_embedding.py", "EntryClass = Qwen3Model", "", "the class Qwen3Model, which"),
        (MESSAGE_FILE, "    lora_path: str", "    path: str", "LoadLoRAAdapterReqInput.lora_path, which"),
        (SERVER, '"/abort_request"', '"/abort"', "the route /abort_request, which"),
        (f"{SRT}arg_groups/fields/lora.py", "max_lora_rank:", "lora_rank:", "the argument --max-lora-rank"),
        (CHOICES, '"gptq",', "", "quantization=gptq, which"),
    ],
)
def test_a_change_of_the_release_is_found(wheel: Path, file: str, old: str, new: str, says: str) -> None:
    def change(name: str, text: str) -> str:
        if name != file:
            return text
        assert old in text
        return text.replace(old, new)

    (found,) = missing(Sources(wheel, change))
    assert found.startswith(says)
