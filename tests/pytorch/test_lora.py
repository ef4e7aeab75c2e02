"""LoRA adapters by request, against PEFT itself: right numbers, shared batches' keys, eviction, refusals."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import shutil
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import peft
import pytest
import torch
import transformers as tf
import yaml
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from sie_cpu.plugin import sie_runners
from sie_pytorch.families.encode import loading
from sie_pytorch.forward import INTERFACE
from sie_pytorch.forward.lora.files import load_lora
from sie_pytorch.forward.specs import RUNNERS
from sie_pytorch.heads.composed.encoder import TextEncoder
from sie_sdk.wire import unpack

from sie_core.contracts import (
    InferenceError,
    InferenceReply,
    InferenceRequest,
    Item,
    LoadContext,
    LoadWait,
    Lora,
    LoraConfig,
    RunnerSpec,
)
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import context, save_encoder
from tests.pytorch.forward.support import TOLERANCE, batch_for, build, deviation, forward, padded_states
from tests.pytorch.models import HIDDEN

MODEL = "test/base"
TEXTS = make_texts(6, 10, seed=3)
COUNT = 11
LIMIT = 10
_numbers = itertools.count()


def write_lora(base: Path, folder: Path, seed: int, **config: Any) -> Path:
    """Save a LoRA adapter for the transformer in `base`, with factors that change what it computes."""
    torch.manual_seed(seed)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value", "dense"], **config}
    model = peft.get_peft_model(tf.AutoModel.from_pretrained(base), peft.LoraConfig(**settings))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.2)
    model.save_pretrained(str(folder))
    return folder


@pytest.mark.parametrize("name", ["electra", "albert"])
@pytest.mark.parametrize("runner", ["cpu-kernels", "encoder-loop", "packed", "padded"])
def test_all_linear_adapters_fit_layers_beside_those_of_the_encoder(
    name: str, runner: str, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    specs = {spec.name: spec for spec in (*RUNNERS, *sie_runners())}
    built = build(checkpoint(name), [specs[runner]] if runner in specs else [])
    if built.info.name != runner:
        pytest.skip(built.info.reason)
    write_lora(checkpoint(name), tmp_path, 5, target_modules="all-linear")
    lora = load_lora("all", tmp_path, built, torch.device("cpu"))
    theirs = peft.PeftModel.from_pretrained(tf.AutoModel.from_pretrained(checkpoint(name)), str(tmp_path)).eval()
    batch = batch_for(name)
    assert deviation(forward(built, batch, lora.payload), padded_states(theirs, batch)) <= 2 * TOLERANCE


def test_a_model_whose_runner_takes_no_factors_says_that_it_takes_no_adapter(
    checkpoint: Callable[[str], Path],
) -> None:
    target = "tests.pytorch.forward.faulty_runners:WithoutLora"
    given = context(checkpoint("bert"))
    without = replace(given, runners=(RunnerSpec("without", INTERFACE, target),))
    assert loading.load(given).facts.takes_lora
    assert not loading.load(without).facts.takes_lora
    declared = replace(given.model, config=replace(given.model.config, loras={"l": LoraConfig("l")}))
    served = loading.load(replace(without, model=declared)).facts
    assert (served.notes["runner"], served.takes_lora) == ("padded", True)


async def test_a_request_for_an_adapter_is_told_which_runner_serves_and_how_another_would(
    files: tuple[Path, dict[str, Path]], tmp_path: Path
) -> None:
    settings = load_settings(
        models_dir=tmp_path, local_cache=tmp_path / "cache", hf_fallback=False, plugins_blocked="cpu"
    )
    config = {"sie_id": MODEL, "weights_path": str(files[0])}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(config))
    without = RunnerSpec("without", INTERFACE, "tests.pytorch.forward.faulty_runners:WithoutLora")
    engine = build_engine(settings, replace(discover(settings, BUILTINS), runners=(without,)))
    await engine.start()
    request = InferenceRequest(
        MODEL, "encode", [Item(text="a")], request_id="r", load_wait=LoadWait(60), options={"lora": "someone/adapter"}
    )
    told = r"takes no LoRA adapters; leave the option out\. Its runner, without, applies none\. .*SIE_RUNNER=packed"
    with pytest.raises(InferenceError, match=told) as caught:
        await asyncio.wait_for(engine.infer(request), 60)
    assert (caught.value.code, caught.value.param) == ("INVALID_INPUT", "options.lora")
    await engine.close()


@dataclass
class World:
    """A base model in the sentence-transformers layout, its adapters, and an engine that serves them."""

    base: Path
    adapters: dict[str, Path]
    engine: Engine
    wrong: Path
    """Where the files of the declared adapter `wrong` are to lie."""
    made: list[TextEncoder] = field(default_factory=list)
    """What the engine loaded."""
    payloads: dict[str, weakref.ref[Any]] = field(default_factory=dict)
    """Of the adapters that were loaded last under each name."""
    expected: dict[str | None, NDArray[np.float32]] = field(default_factory=dict)

    def reference(self, name: str | None) -> NDArray[np.float32]:
        """Encode the texts with PEFT's own model in sentence-transformers."""
        if name not in self.expected:
            model = SentenceTransformer(str(self.base), device="cpu")
            if name is not None:
                transformer = model[0]
                transformer.model = peft.PeftModel.from_pretrained(transformer.model, str(self.adapters[name]))
            self.expected[name] = model.encode(TEXTS)
        return self.expected[name]

    async def infer(self, lora: str | None, *texts: str, wait_s: float = 60, **options: Any) -> InferenceReply:
        options = {**({"lora": lora} if lora else {}), **options}
        request = InferenceRequest(
            MODEL,
            "encode",
            [Item(text=text) for text in texts or TEXTS],
            request_id=f"r{next(_numbers)}",
            load_wait=LoadWait(wait_s),
            options=options,
        )
        return await asyncio.wait_for(self.engine.infer(request), 60)

    @property
    def loaded(self) -> tuple[str, ...]:
        (model,) = self.engine.status().models
        return tuple(model.loras)

    @property
    def adapter(self) -> Any:
        return self.made[-1]


@pytest.fixture(scope="module")
def files(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    root = tmp_path_factory.mktemp("loras")
    base = root / "base"
    save_encoder(checkpoint("bert"), base, st.Pooling(HIDDEN, "mean"), st.Normalize())
    variations: list[dict[str, Any]] = [{} for _ in range(COUNT)]
    variations[1] = {"use_rslora": True}
    variations[2] = {
        "alpha_pattern": {"^encoder.layer.0.attention.self.query": 48, "value": 32},
        "rank_pattern": {"query": 2},
    }
    variations[3] = {"target_modules": "all-linear"}
    adapters = {f"l{n}": write_lora(checkpoint("bert"), root / f"l{n}", n, **v) for n, v in enumerate(variations)}
    return base, adapters


Worlds = Callable[..., Awaitable[World]]


@pytest.fixture
async def worlds(
    files: tuple[Path, dict[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Worlds]:
    """Make worlds, by settings and arguments of their engines; what the engines load is watched."""
    base, adapters = files
    models = tmp_path / "models"
    models.mkdir()
    loras = {name: {"weights_path": str(folder)} for name, folder in adapters.items()}
    loras |= {name: {"weights_path": str(tmp_path / name)} for name in ("gone", "declared-wrong")}
    loras["wrong"] = loras.pop("declared-wrong")
    config = {
        "sie_id": MODEL,
        "weights_path": str(base),
        "loras": loras,
        "profiles": {
            "default": {"adapter_path": "pytorch"},
            "fourth": {"extends": "default", "adapter_options": {"runtime": {"lora_id": "l4"}}},
        },
    }
    (models / "base.yaml").write_text(yaml.safe_dump(config))
    load, load_adapter = loading.load, TextEncoder.load_lora
    made: list[TextEncoder] = []
    payloads: dict[str, weakref.ref[Any]] = {}
    engines: list[Engine] = []

    def load_watched(given: LoadContext) -> TextEncoder:
        made.append(load(given))
        return made[-1]

    def load_lora_watched(adapter: TextEncoder, name: str, folder: Path) -> Lora:
        lora = load_adapter(adapter, name, folder)
        payloads[name] = weakref.ref(lora.payload)
        return lora

    monkeypatch.setattr(loading, "load", load_watched)
    monkeypatch.setattr(TextEncoder, "load_lora", load_lora_watched)

    async def make(clock: Callable[[], float] = time.monotonic, **chosen: Any) -> World:
        settings = load_settings(
            models_dir=models,
            local_cache=tmp_path / "cache",
            hf_fallback=False,
            default_compute_precision="float32",
            max_loras_per_model=LIMIT,
            **chosen,
        )
        engine = build_engine(settings, discover(settings, BUILTINS), clock=clock)
        engines.append(engine)
        await engine.start()
        return World(base, adapters, engine, tmp_path / "declared-wrong", made, payloads)

    yield make
    for engine in engines:
        await engine.close()


@pytest.fixture
async def world(worlds: Worlds) -> World:
    return await worlds()


def dense(reply: InferenceReply) -> NDArray[np.float32]:
    return np.stack([unpack(item)["dense"]["values"] for item in reply.items])


async def test_ten_adapters_change_the_vectors_as_peft_does_and_an_eleventh_evicts_the_longest_unused(
    world: World,
) -> None:
    plain = dense(await world.infer(None))
    assert np.abs(plain - world.reference(None)).max() <= 1e-5
    storages = {weight.ctypes.data for weight in world.adapter._runner._runner._encoder._weights}
    names = list(world.adapters)
    for name in names[:LIMIT]:
        reply = await world.infer(name)
        assert reply.lora == name
        assert np.abs(dense(reply) - world.reference(name)).max() <= 1e-5
        assert np.abs(dense(reply) - plain).max() > 1e-2
    assert world.loaded == tuple(names[:LIMIT])
    await world.infer(names[0])
    await world.infer(names[LIMIT])
    assert world.loaded == (*names[2:LIMIT], names[0], names[LIMIT])
    assert {weight.ctypes.data for weight in world.adapter._runner._runner._encoder._weights} == storages
    assert np.array_equal(dense(await world.infer(None)), plain)


async def test_mixed_traffic_over_five_returns_the_right_ones(world: World) -> None:
    names: list[str | None] = [None, *list(world.adapters)[:5]]
    replies = await asyncio.gather(*(world.infer(names[n % len(names)]) for n in range(60)))
    for n, reply in enumerate(replies):
        name = names[n % len(names)]
        assert reply.lora == name
        assert np.abs(dense(reply) - world.reference(name)).max() <= 1e-5


async def test_one_that_is_not_loaded_answers_lora_loading_at_once_and_soon_serves(world: World) -> None:
    await world.infer(None)
    with pytest.raises(InferenceError) as caught:
        await world.infer("l0", wait_s=0)
    assert caught.value.code == "LORA_LOADING"
    assert (await world.infer("l0")).lora == "l0"
    assert (await world.infer("l0", wait_s=0)).lora == "l0"


async def test_it_has_two_spellings_and_a_profile_may_choose_it(world: World) -> None:
    assert (await world.infer(None, lora_id="l1")).lora == "l1"
    assert (await world.infer(None, profile="fourth")).lora == "l4"
    assert (await world.infer("l2", profile="fourth")).lora == "l2"
    with pytest.raises(InferenceError, match="both mean the same") as caught:
        await world.infer("l1", lora_id="l2")
    assert caught.value.code == "INVALID_INPUT"


async def test_an_evicted_adapter_is_freed(world: World) -> None:
    await world.infer("l0")
    held = world.payloads["l0"]
    assert held() is not None
    for name in list(world.adapters)[1:]:
        await world.infer(name)
    gc.collect()
    assert held() is None
    assert len(world.adapter._runner._runner._encoder._low_ranks) <= LIMIT


async def test_what_the_runner_keeps_of_an_adapter_counts_in_the_model_s_memory(world: World) -> None:
    await world.infer(None)
    alone = world.engine.model(MODEL).memory_bytes
    assert alone is not None
    runner = world.adapter._runner._runner._encoder
    load = world.adapter.load_lora
    packed: list[int] = []
    world.adapter.load_lora = lambda *asked: (load(*asked), packed.append(len(runner._low_ranks)))[0]
    await world.infer("l0")
    assert packed == [1], "the first batch packs it, on the device's thread"
    (copies,) = runner._low_ranks.values()
    payload = world.payloads["l0"]()
    assert payload is not None
    factors = [part for factors in payload.factors.values() for part in (factors.lower, factors.upper)]
    size = sum(part.nbytes for part in (*factors, *copies.memory))
    assert sum(part.nbytes for part in copies.memory) > 0
    assert world.engine.model(MODEL).memory_bytes == alone + size


WRONG: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "biases": {"bias": "all"},
    "no linear layer": {"target_modules": ["word_embeddings"]},
    "whole modules": {"modules_to_save": ["pooler"]},
    "base weights of its own": {"init_lora_weights": "pissa"},
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_no_plain_lora_is_refused(
    what: str, checkpoint: Callable[[str], Path], tmp_path: Path, world: World
) -> None:
    folder = write_lora(checkpoint("bert"), tmp_path / "wrong", 1, **WRONG[what])
    await refused(world, folder, what)


@pytest.mark.parametrize(
    ("field", "value"),
    [("alora_invocation_tokens", [5]), ("use_qalora", True), ("init_lora_weights", "lora_ga")],
)
async def test_another_computation_of_the_factors_is_refused(
    field: str, value: Any, tmp_path: Path, world: World
) -> None:
    folder = Path(shutil.copytree(world.adapters["l0"], tmp_path / "other"))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, field: value}))
    await refused(world, folder, field)


async def refused(world: World, folder: Path, match: str) -> None:
    """Have the engine load the adapter in `folder`."""
    shutil.move(folder, world.wrong)
    with pytest.raises(InferenceError, match=match) as caught:
        await world.infer("wrong")
    assert (caught.value.code, caught.value.param) == ("INVALID_INPUT", "options.lora")


async def test_factors_of_two_layers_that_may_be_the_same_are_refused(tmp_path: Path, world: World) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(world.adapters["l0"], tmp_path / "twice"))
    weights = load_file(folder / "adapter_model.safetensors")
    others = {
        name.replace("model.encoder.", "model.other.encoder."): weight.clone() for name, weight in weights.items()
    }
    save_file({**weights, **others}, folder / "adapter_model.safetensors")
    await refused(world, folder, "several layers where this model's encoder has one")


async def test_one_of_another_base_is_refused_by_its_shapes(tmp_path: Path, world: World) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "wide"
    folder.mkdir()
    source = world.adapters["l0"]
    (folder / "adapter_config.json").write_text((source / "adapter_config.json").read_text())
    weights = load_file(source / "adapter_model.safetensors")
    wide = {
        name: weight.repeat(1, 2).contiguous() if ".lora_A." in name else weight for name, weight in weights.items()
    }
    save_file(wide, folder / "adapter_model.safetensors")
    await refused(world, folder, "was made for another base")


async def test_pickled_and_missing_adapters_are_refused(tmp_path: Path, world: World) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "adapter_config.json").write_text((world.adapters["l0"] / "adapter_config.json").read_text())
    torch.save({}, folder / "adapter_model.bin")
    await refused(world, folder, "safetensors only")
    for name in ("gone", "nobody/has-this"):
        with pytest.raises(InferenceError, match=name) as caught:
            await world.infer(name)
        assert (caught.value.code, caught.value.param) == ("INVALID_INPUT", "options.lora")
        assert str(tmp_path) not in caught.value.message


async def test_only_declared_adapters_are_served_where_the_operator_says_so(worlds: Worlds) -> None:
    world = await worlds(lora_by_id=False)
    with pytest.raises(InferenceError, match="only such are served: those of test/base are") as caught:
        await world.infer("nobody/has-this")
    assert (caught.value.code, caught.value.param) == ("INVALID_INPUT", "options.lora")
    assert (await world.infer("l1")).lora == "l1"


class Body(str):
    """A text that can be watched."""


async def test_a_failure_is_remembered_for_a_while_and_not_the_requests_that_were_told_of_it(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    ahead_s = 0.0
    world = await worlds(clock=lambda: time.monotonic() + ahead_s)

    async def refused() -> weakref.ref[Body]:
        body = Body("text")
        with pytest.raises(InferenceError, match="gone"):
            await world.infer("gone", body)
        return weakref.ref(body)

    bodies = [await refused() for _ in range(3)]
    assert caplog.text.count("LoRA adapter gone") == 1
    gc.collect()
    assert not any(body() for body in bodies)
    ahead_s = 31.0
    await refused()
    assert caplog.text.count("LoRA adapter gone") == 2


def test_a_client_waits_for_the_load_and_is_told_what_was_applied(
    files: tuple[Path, dict[str, Path]], tmp_path: Path, start_server: Callable[..., Any]
) -> None:
    from sie_sdk import SIEClient

    base, adapters = files
    models = tmp_path / "models"
    models.mkdir()
    loras = {name: {"weights_path": str(folder)} for name, folder in adapters.items()}
    (models / "base.yaml").write_text(yaml.safe_dump({"sie_id": MODEL, "weights_path": str(base), "loras": loras}))
    server = start_server({"SIE_MODELS_DIR": str(models)}, ["--preload", MODEL])
    with SIEClient(server.url) as client:
        plain = client.encode(MODEL, TEXTS[0])["dense"]
        adapted = client.encode(MODEL, TEXTS[0], options={"lora": "l1"})["dense"]
        assert np.abs(adapted - plain).max() > 1e-2
    body = {"items": [{"text": TEXTS[0]}], "params": {"options": {"lora_id": "l1"}}}
    answer = httpx.post(f"{server.url}/v1/encode/{MODEL}", json=body, timeout=60)
    assert answer.json()["lora"] == answer.headers["X-SIE-LoRA"] == "l1"


async def test_a_declared_adapter_is_listed(world: World) -> None:
    assert sorted(world.engine.model(MODEL).loras) == sorted([*world.adapters, "gone", "wrong"])


def test_the_config_of_an_adapter_names_what_peft_wrote(files: tuple[Path, dict[str, Path]]) -> None:
    config = json.loads((files[1]["l2"] / "adapter_config.json").read_text())
    assert config["rank_pattern"] == {"query": 2}
