"""Checkpoints in sentence-transformers' layouts, old files of processors, and what is refused at load."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from sie_pytorch.families.vision.claims import claim_vision
from sie_sentence_transformers.fallback.claims import claim_fallback
from sie_text.claims import claim_encoder, claim_pairs, preview_vision
from transformers import SiglipTextConfig

from sie_core.catalog import read_card
from sie_core.contracts import Claim, ModelCard, ModelConfig, ModelLoadError
from tests.pytorch.encoders import deviation, reference
from tests.pytorch.vision.support import TEXTS, ask, change, pictures, serve

LIMIT = 1e-5
FULL = {"text": {"padding": "max_length"}}

Folder = Callable[[str], Path]


def save(base: Path, folder: Path, *modules: Any, **settings: Any) -> SentenceTransformer:
    """Save a checkpoint as sentence-transformers does, and load the result with it."""
    transformer = st.Transformer(str(base), **settings)
    prompts = {"query": "search: ", "document": ""}
    SentenceTransformer(modules=[transformer, *modules], device="cpu", prompts=prompts).save_pretrained(
        str(folder), create_model_card=False
    )
    return reference(folder)


def save_legacy(base: Path, folder: Path) -> SentenceTransformer:
    """Write the layout of `clip-ViT-B-32`: one module in a folder of its own."""
    shutil.copytree(base, folder / "0_CLIPModel")
    module = {"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}
    (folder / "modules.json").write_text(json.dumps([module]))
    return reference(folder)


@pytest.mark.parametrize(("kind", "settings"), [("clip", {}), ("siglip", FULL), ("siglip2", FULL)])
@pytest.mark.parametrize("normalized", [False, True])
def test_the_layout_of_today_gives_what_sentence_transformers_gives(
    kind: str, settings: dict[str, Any], normalized: bool, vision: Folder, tmp_path: Path
) -> None:
    modules = [st.Normalize()] if normalized else []
    length = {} if kind == "clip" else {"processing_kwargs": settings}
    if kind == "siglip2":
        base = tmp_path / "base"
        shutil.copytree(vision(kind), base)
        change(base / "tokenizer_config.json", model_max_length=16)
    else:
        base = vision(kind)
    model = save(base, tmp_path / "st", *modules, **length)
    ours = serve(tmp_path / "st")
    assert deviation(ask(ours, TEXTS), model.encode(list(TEXTS))) <= LIMIT
    assert deviation(ask(ours, TEXTS, input_type="query"), model.encode_query(list(TEXTS))) <= LIMIT
    assert deviation(ask(ours, pictures(), input_type="query"), model.encode(pictures())) <= LIMIT


def test_the_layout_of_a_folder_below_gives_what_sentence_transformers_gives(vision: Folder, tmp_path: Path) -> None:
    model = save_legacy(vision("clip"), tmp_path)
    ours = serve(tmp_path)
    assert deviation(ask(ours, TEXTS), model.encode(list(TEXTS))) <= LIMIT
    assert deviation(ask(ours, pictures()), model.encode(pictures())) <= LIMIT


def test_the_first_files_of_an_image_processor_are_read(vision: Folder, tmp_path: Path) -> None:
    """As the first CLIP has it: sizes as bare numbers, and a class of another name."""
    folder = tmp_path / "old"
    shutil.copytree(vision("clip"), folder)
    file = folder / "preprocessor_config.json"
    written = json.loads(file.read_text())
    old = {name: written[name] for name in ("do_center_crop", "do_normalize", "do_resize", "image_mean", "image_std")}
    file.write_text(
        json.dumps(
            {**old, "crop_size": 32, "size": 32, "resample": 3, "feature_extractor_type": "CLIPFeatureExtractor"}
        )
    )
    assert deviation(ask(serve(folder), pictures()), ask(serve(vision("clip")), pictures())) <= LIMIT


@pytest.mark.parametrize("kind", ["clip", "siglip", "siglip2"])
def test_this_family_alone_claims_them(kind: str, vision: Folder, tmp_path: Path) -> None:
    save(vision(kind), tmp_path / "st")
    save_legacy(vision("clip"), tmp_path / "legacy")
    for folder in (vision(kind), tmp_path / "st", tmp_path / "legacy"):
        card = read_card(folder)
        claim = claim_vision(card)
        assert claim is not None
        assert claim_encoder(card) is None
        assert claim_pairs(card) is None
        fallback = claim_fallback(card)
        assert fallback is None or (isinstance(fallback, Claim) and fallback.priority < claim.priority)


def card(model_type: str, *architectures: str) -> ModelCard:
    return ModelCard(Path("/weights"), {"model_type": model_type, "architectures": list(architectures)})


@pytest.mark.parametrize(
    "other",
    [
        card("clip_text_model", "CLIPTextModelWithProjection"),
        card("clip", "CLIPVisionModelWithProjection"),
        card("siglip", "SiglipForImageClassification"),
        card("siglip2", "Siglip2Model"),
        card("bert", "BertModel"),
    ],
)
def test_a_tower_alone_and_other_models_are_not_claimed(other: ModelCard) -> None:
    assert claim_vision(other) is None


def _no_processor(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()


def _another_size(folder: Path) -> None:
    change(folder / "preprocessor_config.json", crop_size={"height": 24, "width": 24})


def _another_way(folder: Path) -> None:
    change(folder / "preprocessor_config.json", size={"shortest_edge": 32, "longest_edge": 40})


def _padded(folder: Path) -> None:
    fields = {"crop_size": {"height": 24, "width": 24}, "do_pad": True, "pad_size": {"height": 32, "width": 32}}
    change(folder / "preprocessor_config.json", **fields)


def _no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _other_weights(folder: Path) -> None:
    written = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", vision_config={**written["vision_config"], "num_hidden_layers": 3})


def _no_config(folder: Path) -> None:
    change(folder / "config.json", vision_config={"hidden_size": "wide"})


@pytest.mark.parametrize(
    ("spoil", "failure", "words"),
    [
        (_no_processor, "CONFIG", "preprocessor_config.json"),
        (_another_size, "CONFIG", "32 × 32"),
        (_another_way, "CONFIG", "longest_edge"),
        (_padded, "CONFIG", "beyond resize"),
        (_no_tokenizer, "CONFIG", "tokenizer"),
        (_no_weights, "CORRUPT", "safetensors"),
        (_other_weights, "CORRUPT", "lacks"),
        (_no_config, "CONFIG", "config.json"),
    ],
)
def test_files_that_cannot_be_served_are_refused_by_name(
    spoil: Callable[[Path], None], failure: str, words: str, vision: Folder, tmp_path: Path
) -> None:
    folder = tmp_path / "spoilt"
    shutil.copytree(vision("clip"), folder)
    spoil(folder)
    with pytest.raises(ModelLoadError) as refused:
        serve(folder)
    assert refused.value.failure == failure
    assert words in str(refused.value)


def test_weights_in_a_pickle_alone_are_refused(vision: Folder, tmp_path: Path) -> None:
    save_legacy(vision("clip"), tmp_path)
    (tmp_path / "0_CLIPModel/model.safetensors").rename(tmp_path / "0_CLIPModel/pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="pickle"):
        serve(tmp_path)


def test_the_size_of_vectors_is_known_before_a_load_where_the_config_leaves_it_out() -> None:
    """SigLIP 2's config of base size states the vocabulary alone: the rest is what transformers' class assumes."""
    config = {"model_type": "siglip", "text_config": {"model_type": "siglip_text_model", "vocab_size": 256000}}
    preview = preview_vision(ModelCard(Path("nowhere"), config), ModelConfig("m"))
    assert preview is not None
    assert preview.dims == {"dense": SiglipTextConfig().projection_size}
