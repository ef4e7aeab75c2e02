"""What the tests of images and texts share: tiny checkpoints, pictures, and our adapter driven as the engine does."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import transformers as tf
from numpy.typing import NDArray
from PIL import Image
from sie_pytorch.families.vision.loading import load
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from sie_core.contracts import Adapter, Item, Media, Unit
from tests.pytorch.encoders import context, task
from tests.pytorch.models import randomise
from tests.pytorch.tokenizers import CORPUS, write_tokenizer

SIZE = 32
POSITIONS = 16
HIDDEN = 32
DIMS = 24
TEXTS = (
    "a fox",
    "The quick, BROWN fox isn't lazy!",
    "der Fuchs \N{FOX FACE} 狐",
    "a query is short and a document is long; the model reads both and the index keeps what it has read",
    "",
)
SHAPES = ((50, 70), (90, 33), (20, 20), (32, 32), (7, 61))
"""Heights and widths of pictures: larger and smaller than what the model sees, wide and tall."""

TOWER = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SIGHT = {**TOWER, "image_size": SIZE, "patch_size": 8}


def write_clip(folder: Path, *, dims: int = DIMS, size: int = SIZE, **fields: Any) -> Path:
    """Write a CLIP as `CLIPModel`, its tokenizer and its image processor save themselves; it sees `size` pixels."""
    tokenizer = _clip_tokenizer()
    ids = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    ids["pad_token_id"] = tokenizer.pad_token_id
    text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS, **ids}
    sight = {**SIGHT, "image_size": size, "patch_size": size // 4}
    config = tf.CLIPConfig(text_config=text, vision_config=sight, projection_dim=dims, **fields)
    _save(tf.CLIPModel(config), folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": size}, crop_size={"height": size, "width": size}).save_pretrained(
        folder
    )
    return folder


def write_siglip(folder: Path, *, masked: bool = False) -> Path:
    """Write a SigLIP with its tokenizer on SentencePiece, which tells of no mask unless it is `masked`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spiece.model").write_bytes(_sentence_pieces())
    names = ["input_ids", "attention_mask"] if masked else ["input_ids"]
    tokenizer = tf.SiglipTokenizer(str(folder / "spiece.model"), model_max_length=POSITIONS, model_input_names=names)
    tokenizer.save_pretrained(folder)
    return _write_siglip(folder, len(tokenizer))


def write_siglip2(folder: Path) -> Path:
    """Write a SigLIP 2 of fixed size: SigLIP's model, and a tokenizer with a Rust core that names no length."""
    write_tokenizer("t5", folder, model_max_length=10**30)
    change(folder / "tokenizer_config.json", model_input_names=["input_ids"])
    return _write_siglip(folder, 400)


WRITERS = {"clip": write_clip, "siglip": write_siglip, "siglip2": write_siglip2}


def _write_siglip(folder: Path, vocabulary: int) -> Path:
    text = {**TOWER, "vocab_size": vocabulary, "max_position_embeddings": POSITIONS, "projection_size": HIDDEN}
    text |= {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 1}
    _save(tf.SiglipModel(tf.SiglipConfig(text_config=text, vision_config=SIGHT)), folder)
    processor = SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE}, resample=2)
    processor.do_convert_rgb = None  # as the published files have it
    processor.save_pretrained(folder)
    return folder


def _save(model: Any, folder: Path) -> None:
    randomise(model, 0)
    model.save_pretrained(folder)


def change(file: Path, **fields: Any) -> None:
    """Set fields of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@cache
def _clip_tokenizer() -> Any:
    form = tf.CLIPTokenizer().backend_tokenizer
    core = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    core.normalizer, core.pre_tokenizer = form.normalizer, form.pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, end_of_word_suffix="</w>", initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(CORPUS, trainer)
    model = json.loads(core.to_str())["model"]
    vocabulary = model["vocab"]
    ends = (letter + "</w>" for letter in alphabet)
    for token in (*ends, "<|startoftext|>", "<|endoftext|>"):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(merge) for merge in model["merges"]]
    return tf.CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=POSITIONS)


@cache
def _sentence_pieces() -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line.lower() for line in CORPUS]),
        model_writer=model,
        vocab_size=90,
        hard_vocab_limit=False,
        unk_id=0,
        eos_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


def picture(place: int = 0, mode: str = "RGB", shape: tuple[int, int] | None = None) -> Image.Image:
    """Draw noise over a gradient: neither filter, mean nor the order of channels goes unnoticed."""
    height, width = shape or SHAPES[place % len(SHAPES)]
    noise = np.random.default_rng(place).integers(0, 96, (height, width, 3))
    ramp = np.linspace(0, 159, width)[None, :, None] * np.array([1.0, 0.6, 0.2])
    return Image.fromarray((noise + ramp).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, form: str = "PNG", **arguments: Any) -> bytes:
    """Write a picture as a file of that format."""
    buffer = io.BytesIO()
    image.save(buffer, format=form, **arguments)
    return buffer.getvalue()


def image_item(image: Image.Image | bytes, said: str | None = None) -> Item:
    return Item(images=(Media(image if isinstance(image, bytes) else encoded(image), said),))


def see_through(mode: str = "RGBA") -> Image.Image:
    """Draw a picture whose transparent parts hide noise of their own."""
    image = picture(3, "RGB", shape=(38, 38))
    image.putalpha(picture(4, "L", shape=(38, 38)).point(lambda level: 0 if level < 96 else level))
    return image.convert(mode)


def pictures() -> list[Image.Image]:
    return [picture(place) for place in range(len(SHAPES))]


def serve(folder: Path, **arguments: Any) -> Adapter:
    return load(context(folder, **arguments))


def ask(adapter: Adapter, items: Sequence[str | Item | Image.Image], **fields: Any) -> NDArray[np.float32]:
    """Encode as the engine does: one batch a key."""
    ready = [Item(text=item) if isinstance(item, str) else item for item in items]
    ready = [image_item(item) if isinstance(item, Image.Image) else item for item in ready]
    units = list(adapter.prepare(ready, task(**fields)))
    vectors: dict[int, NDArray[np.float32]] = {}
    for key in dict.fromkeys(unit.key for unit in units):
        batch: list[Unit] = sorted((unit for unit in units if unit.key == key), key=lambda unit: unit.cost)
        for unit, output in zip(batch, adapter.finish(batch, adapter.run(batch)), strict=True):
            assert output.dense is not None
            vectors[unit.item] = output.dense
    return np.stack([vectors[place] for place in range(len(ready))])


class Reference:
    """What transformers itself makes of texts and pictures."""

    def __init__(self, folder: Path) -> None:
        self.model = tf.AutoModel.from_pretrained(folder).eval()
        self.tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        self.processor = tf.AutoImageProcessor.from_pretrained(folder, backend="pil")

    def texts(self, texts: Sequence[str], length: int = POSITIONS) -> NDArray[np.float32]:
        padding = "max_length" if self.model.config.model_type == "siglip" else True
        inputs = self.tokenizer(list(texts), padding=padding, truncation=True, max_length=length, return_tensors="pt")
        with torch.inference_mode():
            return self.model.get_text_features(**inputs).pooler_output.numpy()

    def images(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        inputs = self.processor(list(images), do_convert_rgb=True, return_tensors="pt")
        with torch.inference_mode():
            return self.model.get_image_features(**inputs).pooler_output.numpy()
