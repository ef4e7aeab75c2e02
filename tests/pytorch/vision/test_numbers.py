"""CLIP and SigLIP give what transformers gives, whatever else is in the batch."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sie_pytorch.families.vision.towers import PREEMPTIBLE_PARTS

from sie_core.contracts import Adapter, Item, preempted_by
from tests.pytorch.encoders import deviation, task
from tests.pytorch.vision.support import (
    POSITIONS,
    SIZE,
    TEXTS,
    Reference,
    ask,
    encoded,
    image_item,
    picture,
    pictures,
    see_through,
    serve,
    write_siglip,
)

KINDS = ("clip", "siglip", "siglip2")
LIMIT = 1e-5

Folder = Callable[[str], Path]
Served = Callable[[str], Adapter]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_texts_are_those_of_transformers(kind: str, vision: Folder, served: Served) -> None:
    assert deviation(ask(served(kind), TEXTS), Reference(vision(kind)).texts(TEXTS)) <= LIMIT


def test_images_are_those_of_transformers(kind: str, vision: Folder, served: Served) -> None:
    assert deviation(ask(served(kind), pictures()), Reference(vision(kind)).images(pictures())) <= LIMIT


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK"])
def test_pictures_of_any_mode_are_those_of_transformers(mode: str, vision: Folder, served: Served) -> None:
    image = picture(0, mode)
    data = encoded(image, "JPEG" if mode == "CMYK" else "PNG")
    ours = ask(served("siglip"), [image_item(data)])
    opened = Image.open(io.BytesIO(data))
    assert opened.mode == mode
    assert deviation(ours, Reference(vision("siglip")).images([opened])) <= LIMIT


SEE_THROUGH: dict[str, tuple[str, str, dict[str, Any]]] = {
    "RGBA": ("RGBA", "PNG", {}),
    "gray with alpha": ("LA", "PNG", {}),
    "a palette with one transparent colour": ("P", "PNG", {"transparency": 8}),
    "a palette with alpha": ("P", "PNG", {"transparency": bytes(range(256))}),
    "a transparent gray": ("L", "PNG", {"transparency": 82}),
    "one transparent bit": ("1", "PNG", {"transparency": 0}),
    "GIF": ("P", "GIF", {"transparency": 8}),
    "WebP": ("RGBA", "WEBP", {"lossless": True}),
    "TIFF": ("RGBA", "TIFF", {}),
    "AVIF": ("RGBA", "AVIF", {}),
}


@pytest.mark.parametrize("name", SEE_THROUGH)
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_transparent_pictures_lie_on_white_as_those_of_transformers(
    name: str, kind: str, vision: Folder, served: Served
) -> None:
    mode, form, how = SEE_THROUGH[name]
    data = encoded(see_through(mode), form, **how)
    opened = Image.open(io.BytesIO(data))
    assert opened.convert("RGBA").getextrema()[3][0] < 255
    expected = Reference(vision(kind)).images([opened])
    assert deviation(ask(served(kind), [image_item(data)]), expected) <= LIMIT


def test_a_text_or_an_image_of_a_batch_equals_the_same_alone(kind: str, served: Served) -> None:
    items = [*TEXTS, *pictures(), TEXTS[0]]
    together = ask(served(kind), items)
    alone = np.concatenate([ask(served(kind), [item]) for item in items])
    assert deviation(together, alone) <= LIMIT
    assert np.abs(together[: len(items) - 1] - together[1:]).max(axis=1).min() > 0.1


def test_a_mask_is_given_where_the_tokenizer_s_files_have_one(tmp_path: Path, vision: Folder) -> None:
    masked = write_siglip(tmp_path / "masked", masked=True)
    ours = ask(serve(masked), TEXTS)
    assert deviation(ours, Reference(masked).texts(TEXTS)) <= LIMIT
    assert deviation(ours, Reference(vision("siglip")).texts(TEXTS)) > 0.01


def test_a_text_costs_its_tokens_and_an_image_its_patches(kind: str, served: Served) -> None:
    units = list(served(kind).prepare([Item(text=TEXTS[0]), image_item(picture())], task()))
    assert units[0].cost == (units[0].tokens if kind == "clip" else POSITIONS)
    assert (units[1].cost, units[1].tokens) == ((SIZE // 8) ** 2, 0)
    assert units[1].nbytes == 3 * SIZE**2
    assert units[0].key != units[1].key


def test_long_texts_are_cut_as_asked_and_the_cut_is_told(kind: str, vision: Folder, served: Served) -> None:
    (unit,) = served(kind).prepare([Item(text=TEXTS[3])], task())
    assert unit.truncated is not None
    assert unit.truncated.kept == POSITIONS
    short = ask(served(kind), TEXTS, options={"max_seq_length": 6})
    if kind == "clip":
        assert deviation(short, Reference(vision(kind)).texts(TEXTS, 6)) <= LIMIT
    assert np.abs(short[3] - ask(served(kind), [TEXTS[3]])[0]).max() > 0.01


def test_vectors_get_unit_length_where_that_is_asked(kind: str, served: Served) -> None:
    items = [TEXTS[0], picture()]
    raw = ask(served(kind), items)
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.1
    unit = ask(served(kind), items, options={"normalize": True})
    assert unit == pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True), abs=1e-6)


def test_more_pictures_than_one_forward_pass_takes_are_the_same(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ask(served("clip"), pictures())
    monkeypatch.setattr(served("clip")._towers, "_chunk", 2)  # type: ignore[attr-defined]
    assert deviation(ask(served("clip"), pictures()), whole) <= LIMIT


def test_pictures_that_short_requests_preempt_are_the_same(served: Served) -> None:
    towers, preempted = served("clip")._towers, []  # type: ignore[attr-defined]
    pixels = [np.full((3, *([towers._model.config.vision_config.image_size] * 2)), level, np.uint8) for level in (0, 9)]
    pixels *= towers._chunk // PREEMPTIBLE_PARTS + 1
    with torch.inference_mode():
        whole = towers.images(pixels)
        with preempted_by(lambda: preempted.append(None)):
            parted = towers.images(pixels)
    assert preempted
    assert (parted - whole).abs().max() <= LIMIT
