"""A fault seeded into each part of the way from a picture or a text to a vector is seen by the comparison."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from sie_pytorch.families.vision import loading, pixels
from sie_pytorch.families.vision.pixels import PixelReader

from sie_core.contracts import ModelLoadError
from tests.pytorch.encoders import deviation
from tests.pytorch.vision.support import HIDDEN, TEXTS, Reference, ask, change, pictures, serve, write_clip

SEEN = 1e-2
"""A thousand times what the comparisons allow."""

Folder = Callable[[str], Path]


@pytest.mark.parametrize(
    "fields",
    [
        {"image_mean": [0.5, 0.4578275, 0.40821073]},
        {"image_std": [0.26862954, 0.3, 0.27577711]},
        {"resample": 2},
        {"do_center_crop": False, "size": {"height": 32, "width": 32}},
        {"rescale_factor": 1 / 256},
        {"do_normalize": False},
    ],
)
def test_another_preparation_of_pictures_is_seen(fields: dict[str, Any], vision: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "faulty"
    shutil.copytree(vision("clip"), folder)
    change(folder / "preprocessor_config.json", **fields)
    assert deviation(ask(serve(folder), pictures()), Reference(vision("clip")).images(pictures())) > SEEN


def test_transparency_that_is_dropped_is_seen_at_load(vision: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "to_rgb", lambda image: image.convert("RGB"))
    with pytest.raises(ModelLoadError, match="mode RGBA"):
        serve(vision("clip"))


def test_swapped_channels_are_seen(vision: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, right = serve(vision("clip")), PixelReader.pixels
    monkeypatch.setattr(PixelReader, "pixels", lambda reader, image: right(reader, image)[::-1].copy())
    assert deviation(ask(adapter, pictures()), Reference(vision("clip")).images(pictures())) > SEEN


def test_an_orientation_that_were_applied_is_seen(vision: Folder) -> None:
    turned = [image.transpose(Image.Transpose.ROTATE_90) for image in pictures()]
    assert deviation(ask(serve(vision("siglip")), turned), Reference(vision("siglip")).images(pictures())) > SEEN


@pytest.mark.parametrize("tower", ["visual", "text"])
def test_a_missing_projection_is_seen(tower: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, load = write_clip(tmp_path / "clip", dims=HIDDEN), loading.load_model

    def without(*arguments: Any) -> Any:
        model = load(*arguments)
        setattr(model, f"{tower}_projection", torch.nn.Identity())
        return model

    monkeypatch.setattr(loading, "load_model", without)
    items, theirs = (
        (pictures(), Reference(folder).images) if tower == "visual" else (list(TEXTS), Reference(folder).texts)
    )
    assert deviation(ask(serve(folder), items), theirs(items)) > SEEN


def test_texts_that_are_not_filled_up_are_seen(vision: Folder) -> None:
    adapter = serve(vision("siglip"))
    whole = Reference(vision("siglip")).texts(TEXTS[:1])
    assert deviation(ask(adapter, TEXTS[:1]), whole) < SEEN
    object.__setattr__(adapter._padding, "length", None)  # type: ignore[attr-defined]
    assert deviation(ask(adapter, TEXTS[:1]), whole) > SEEN


def test_texts_filled_up_with_another_token_are_seen(vision: Folder) -> None:
    adapter = serve(vision("siglip2"))
    object.__setattr__(adapter._padding, "token", 7)  # type: ignore[attr-defined]
    assert deviation(ask(adapter, TEXTS), Reference(vision("siglip2")).texts(TEXTS)) > SEEN
