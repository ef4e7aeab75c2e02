"""Every GLiNER of the catalog loads by its name: checkpoints in the layouts that were published, and gliner's answers.

Such a layout is made from a checkpoint that gliner saved: it loses its tokenizers and the configs of its encoders, and
its weights become a pickle. What it then lacks is in a repository of the base encoder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import sie_gliner
import torch
from safetensors.torch import load_file
from sie_gliner.checkpoint.bases import BASES
from sie_gliner.checkpoint.config import read_config as read_gliner_config
from sie_gliner.text.tokenizers import load_tokens
from transformers import AutoConfig, AutoModel

from sie_core.cache import HubTier, LocalTier, WeightChain
from sie_core.catalog import read_card, read_config
from sie_core.catalog.configs.snapshot import profiles_of
from sie_core.catalog.fetching import fetch_model
from sie_core.catalog.loading import load_adapter
from sie_core.contracts import Adapter, Device, LoadContext, ModelConfig, ModelLoadError, PinnedFile
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings
from tests.cache.fake_hub import COMMIT, FakeHub, files_of, run_hub
from tests.gliner.library import library
from tests.gliner.loading import asking, extract, spans

ROWS = {read_config(file).id: read_config(file) for file in Path(sie_gliner.__file__).parent.glob("models/*.yaml")}
PICKLE = "pytorch_model.bin"
TEXTS = ["Ada Lovelace saw the old river in Berlin.", "the new note of a person, quiet food and animal"]
LABELS = ["person", "place", "old city"]
DEBERTA = "microsoft/deberta-v3-"
FROM_TOKENIZER = ("class_token_index", "vocab_size", "rel_token_index", "ent_token", "sep_token", "rel_token")
"""Fields that the first configs have not: gliner derives their values from the tokenizer."""


@dataclass(frozen=True)
class Layout:
    """How a checkpoint was published."""

    kind: str
    """Of `tests.gliner.checkpoints`."""
    encoder: str = "deberta"
    base: str | None = None
    """The encoder it names, whose config and tokenizer are not there; None if everything is."""
    pickled: bool = False


LAYOUTS = {
    "EmergentMethods/gliner_medium_news-v2.1": Layout("span", base=f"{DEBERTA}base", pickled=True),
    "knowledgator/gliner-bi-base-v2.0": Layout("bi-span", "modernbert"),
    "knowledgator/gliner-bi-edge-v2.0": Layout("bi-span", "modernbert"),
    "knowledgator/gliner-bi-large-v2.0": Layout("bi-span", "modernbert"),
    "knowledgator/gliner-bi-small-v2.0": Layout("bi-span", "modernbert"),
    "knowledgator/gliner-multitask-large-v0.5": Layout("token", pickled=True),
    "knowledgator/gliner-multitask-v1.0": Layout("token", pickled=True),
    "knowledgator/gliner-relex-large-v1.0": Layout("relex"),
    "numind/NuNER_Zero": Layout("token", base=f"{DEBERTA}large"),
    "numind/NuNER_Zero-span": Layout("marker", base=f"{DEBERTA}large", pickled=True),
    "urchade/gliner_base": Layout("marker", base=f"{DEBERTA}base", pickled=True),
    "urchade/gliner_large-v2.1": Layout("span", base=f"{DEBERTA}large", pickled=True),
    "urchade/gliner_large_bio-v0.1": Layout("span", base=f"{DEBERTA}large", pickled=True),
    "urchade/gliner_medium-v2.1": Layout("span", base=f"{DEBERTA}base", pickled=True),
    "urchade/gliner_multi-v2.1": Layout("span", base="microsoft/mdeberta-v3-base"),
    "urchade/gliner_multi_pii-v1": Layout("span", base="microsoft/mdeberta-v3-base", pickled=True),
    "urchade/gliner_small-v2.1": Layout("span", base=f"{DEBERTA}small", pickled=True),
}


@pytest.fixture(scope="module")
def plugins() -> PluginSet:
    return discover(Settings(), BUILTINS)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with run_hub() as served:
        yield served


def publish(whole: Path, layout: Layout, folder: Path) -> Path:
    """Turn a checkpoint of gliner's into one of this layout."""
    shutil.copytree(whole, folder)
    if layout.base is not None:
        config = json.loads((folder / "gliner_config.json").read_text())
        for name in ("encoder_config", *FROM_TOKENIZER):
            config.pop(name, None)
        (folder / "gliner_config.json").write_text(json.dumps({**config, "model_name": layout.base}))
        for file in folder.glob("*token*.json"):
            file.unlink()
    if layout.pickled:
        torch.save(load_file(folder / "model.safetensors"), folder / PICKLE)
        (folder / "model.safetensors").unlink()
    return folder


def base_files(whole: Path) -> dict[str, bytes]:
    """Return the files of the base encoder's repository: its tokenizer, its config, weights that nobody asks for."""
    config = json.loads((whole / "gliner_config.json").read_text())["encoder_config"]
    return {
        **files_of(whole.parent / "encoder"),
        "config.json": json.dumps(config).encode(),
        PICKLE: b"the encoder's own",
    }


def pin(file: Path) -> dict[str, PinnedFile]:
    return {file.name: PinnedFile(None, hashlib.sha256(file.read_bytes()).hexdigest())} if file.is_file() else {}


def load(config: ModelConfig, chain: WeightChain, plugins: PluginSet) -> Adapter:
    """Load a model as the engine does."""
    (resolved,) = profiles_of(config)
    fetched = fetch_model(resolved, chain, plugins, Device("cpu"))
    assert fetched.weights is not None
    context = LoadContext(
        resolved,
        Device("cpu"),
        "float32",
        weights=fetched.weights.folder,
        card=fetched.card,
        tokenizers=fetched.weights.tokenizer_folders,
        runners=plugins.runners,
    )
    return load_adapter(fetched, context, plugins)[0]


def answers_as_gliner(adapter: Adapter, whole: Path) -> int:
    """Compare the answers with those of gliner on the checkpoint that it saved; return the number of entities."""
    found = 0
    for text in TEXTS:
        (ours,) = extract(adapter, [text], asking(LABELS, threshold=0.1, flat_ner=False))
        theirs = library().entities(whole, text, LABELS, threshold=0.1, flat_ner=False)
        assert spans(ours.entities) == spans(theirs)
        scores = {(each["start"], each["end"], each["label"]): each["score"] for each in theirs}
        for each in ours.entities:
            assert each.score == pytest.approx(scores[each.start, each.end, each.label], abs=1e-4)
        found += len(theirs)
    return found


def test_every_row_of_the_catalog_has_its_layout_here() -> None:
    assert set(LAYOUTS) == set(ROWS)


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_a_row_loads_by_its_name_and_answers_as_gliner(
    name: str, checkpoint: Callable[..., Path], plugins: PluginSet, hub: FakeHub, tmp_path: Path
) -> None:
    layout, config = LAYOUTS[name], ROWS[name]
    whole = checkpoint(layout.kind, layout.encoder)
    folder = publish(whole, layout, tmp_path / "published")
    hub.files = {name: files_of(folder)}
    if layout.base is not None:
        hub.files[layout.base] = base_files(whole)
    # The hash is that of our checkpoint, as an operator would state it.
    config = replace(config, pickles=pin(folder / PICKLE))
    local, remote = LocalTier(tmp_path / "cache"), HubTier(tmp_path / "cache", hub.url)
    assert answers_as_gliner(load(config, WeightChain([local, remote]), plugins), whole) > 0
    assert not any(layout.base is not None and f"{layout.base}/resolve/{COMMIT}/{PICKLE}" in each for each in hub.asked)

    hub.asked.clear()
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.safetensors")}
    offline = load(config, WeightChain([local]), plugins)
    assert answers_as_gliner(offline, whole) > 0
    assert hub.asked == []
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.safetensors")} == before != {}


def test_a_pickle_that_no_row_pins_is_refused_with_the_remedies_before_it_is_fetched(
    checkpoint: Callable[..., Path], plugins: PluginSet, hub: FakeHub, tmp_path: Path
) -> None:
    name = "urchade/gliner_small-v2.1"
    folder = publish(checkpoint("span", "deberta"), LAYOUTS[name], tmp_path / "published")
    hub.files = {name: files_of(folder)}
    chain = WeightChain([LocalTier(tmp_path / "cache"), HubTier(tmp_path / "cache", hub.url)])
    with pytest.raises(ModelLoadError) as raised:
        load(replace(ROWS[name], pickles={}), chain, plugins)
    assert raised.value.failure == "CONFIG"
    assert "sie models pin" in str(raised.value)
    assert "weights_path" in str(raised.value)
    assert not any(PICKLE in each for each in hub.asked)


def test_a_file_of_another_hash_than_the_row_s_is_not_read(
    checkpoint: Callable[..., Path], plugins: PluginSet, hub: FakeHub, tmp_path: Path
) -> None:
    name = "EmergentMethods/gliner_medium_news-v2.1"
    whole = checkpoint("span", "deberta")
    folder = publish(whole, LAYOUTS[name], tmp_path / "published")
    hub.files = {name: files_of(folder), f"{DEBERTA}base": base_files(whole)}
    chain = WeightChain([HubTier(tmp_path / "cache", hub.url)])
    pins = {PICKLE: PinnedFile(None, "0" * 64)}
    with pytest.raises(ModelLoadError, match=rf"{PICKLE} is not the file that the model's config pins") as raised:
        load(replace(ROWS[name], pickles=pins), chain, plugins)
    assert raised.value.failure == "CORRUPT"
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_folder_with_a_pinned_pickle_and_no_tokenizer_says_what_to_state(
    checkpoint: Callable[..., Path], plugins: PluginSet, tmp_path: Path
) -> None:
    whole = checkpoint("span", "deberta")
    folder = publish(whole, Layout("span", base=f"{DEBERTA}base", pickled=True), tmp_path / "published")
    base = ROWS["urchade/gliner_base"]
    config = replace(base, id="mine", weights_path=str(folder), pickles=pin(folder / PICKLE))
    with pytest.raises(ModelLoadError, match=r"mine needs the tokenizer and the config of microsoft/deberta-v3-base"):
        load(config, WeightChain([]), plugins)
    unknown = json.loads((folder / "gliner_config.json").read_text()) | {"model_name": "/home/acme/encoder"}
    (folder / "gliner_config.json").write_text(json.dumps(unknown))
    with pytest.raises(ModelLoadError, match=r"no encoder_config, and nothing is known of '/home/acme/encoder'"):
        load(config, WeightChain([]), plugins)


def test_the_labels_encoder_of_a_bi_encoder_is_looked_up_too(
    checkpoint: Callable[..., Path], plugins: PluginSet, hub: FakeHub, tmp_path: Path
) -> None:
    whole = checkpoint("bi-span", "modernbert")
    folder = publish(whole, Layout("bi-span", base=f"{DEBERTA}base", pickled=True), tmp_path / "published")
    written = json.loads((whole / "gliner_config.json").read_text())
    config = json.loads((folder / "gliner_config.json").read_text())
    del config["labels_encoder_config"]
    (folder / "gliner_config.json").write_text(json.dumps({**config, "labels_encoder": "acme/labels"}))
    shutil.rmtree(folder / "labels_tokenizer")
    labels = json.dumps(written["labels_encoder_config"]).encode()
    hub.files = {
        "acme/bi": files_of(folder),
        f"{DEBERTA}base": base_files(whole),
        "acme/labels": {**files_of(whole.parent / "labels"), "config.json": labels},
    }
    model = replace(ROWS["urchade/gliner_base"], id="acme/bi", hf_id="acme/bi", pickles=pin(folder / PICKLE))
    adapter = load(model, WeightChain([HubTier(tmp_path / "cache", hub.url)]), plugins)
    assert answers_as_gliner(adapter, whole) > 0


PARAMETERS = {
    "microsoft/deberta-v3-xsmall": (22, 48),
    "microsoft/deberta-v3-small": (44, 98),
    "microsoft/deberta-v3-base": (86, 98),
    "microsoft/deberta-v3-large": (304, 131),
    "microsoft/mdeberta-v3-base": (86, 190),
    "answerdotai/ModernBERT-base": (149, 0),
    "answerdotai/ModernBERT-large": (395, 0),
}
"""Millions of parameters by the models' cards: of the layers, and of the table of tokens if the card tells it apart."""


@pytest.mark.parametrize("name", sorted(BASES))
def test_the_table_s_encoders_are_of_the_published_sizes(name: str) -> None:
    with torch.device("meta"):
        model: Any = AutoModel.from_config(AutoConfig.for_model(**BASES[name]))
    table = model.get_input_embeddings().weight.numel()
    layers, tokens = PARAMETERS[name]
    everything = sum(each.numel() for each in model.parameters())
    assert (everything - bool(tokens) * table) / 1e6 == pytest.approx(layers, abs=2)
    assert tokens == 0 or table / 1e6 == pytest.approx(tokens, abs=3)


def test_a_base_encoder_s_sentencepiece_model_splits_words_as_sentencepiece(tmp_path: Path) -> None:
    """Microsoft's encoders have `spm.model` alone, and no class in their `tokenizer_config.json`."""
    base, folder = tmp_path / "base", tmp_path / "checkpoint"
    base.mkdir()
    folder.mkdir()
    words = [*TEXTS[0].strip(".").split(), *TEXTS[1].replace(",", "").split()]
    lines = [" ".join(words[step:] + words[:step]) for step in range(len(words))] * 20
    (tmp_path / "lines").write_text("\n".join(lines))
    roles = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "lines"),
        model_prefix=str(base / "spm"),
        vocab_size=44,
        hard_vocab_limit=False,
        minloglevel=2,
        **{f"{role}_id": number for number, role in enumerate(roles)},
        **{f"{role}_piece": piece for role, piece in roles.items()},
    )
    (base / "config.json").write_text('{"model_type": "deberta-v2"}')
    (base / "tokenizer_config.json").write_text('{"do_lower_case": false, "vocab_type": "spm"}')
    (folder / "gliner_config.json").write_text(json.dumps({"model_name": "microsoft/deberta-v3-small"}))
    (folder / "model.safetensors").touch()
    written = read_gliner_config(read_card(folder), {"microsoft/deberta-v3-small": base})
    tokens, config = load_tokens(written)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(base / "spm.model"))
    for word in [*words, "Lovelaceriver", "Zürich", "notes", "x"]:
        assert tokens.ids([word]).tolist() == pieces.encode(word)
    framed = tokens.frame(tokens.ids(["<<ENT>>", "city", "<<SEP>>", "Ada"])).tolist()
    size = pieces.get_piece_size()  # [MASK] comes after them, then [FLERT] and the two markers
    assert framed == [1, size + 2, *pieces.encode("city"), size + 3, *pieces.encode("Ada"), 2]
    assert (config.entity_index, config.encoder["vocab_size"]) == (size + 2, size + 4)
