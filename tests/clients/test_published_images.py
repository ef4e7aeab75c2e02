"""Images with the published `sie-sdk` 0.10.1, unchanged, against a live server of a CLIP."""

import io

import numpy as np
import pytest
from PIL import Image
from sie_kit import serving

from tests.pytorch.vision.support import TEXTS, Reference, encoded, picture, write_clip

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]
MODEL = "test/clip"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    write_clip(folder / "models" / MODEL)
    return folder


@pytest.fixture(scope="module")
def reference(folder):
    return Reference(folder / "models" / MODEL)


@pytest.fixture(scope="module")
def told(published_sdk, folder):
    data = encoded(picture(0))
    (folder / "picture.png").write_bytes(data)
    ask = {"model": MODEL, "texts": TEXTS[:2], "png": data.hex(), "broken": data[:200].hex()}
    settings = {"models_dir": folder / "models", "local_cache": folder / "cache", "hf_fallback": False}
    with serving(**settings, preload_models=(MODEL,)) as server:
        return published_sdk.run("published_images.py", url=server.url, path=str(folder / "picture.png"), **ask)


def test_a_file_s_bytes_are_seen_as_transformers_sees_them(told, reference):
    assert told["bytes"] == pytest.approx(reference.images([picture(0)])[0], abs=1e-4)


def test_pixels_are_seen_as_the_client_sends_them(told, reference):
    """It writes them, and the pictures of files, as JPEG of quality 95, which loses a little."""
    sent = Image.open(io.BytesIO(encoded(picture(0), "JPEG", quality=95)))
    expected = reference.images([sent])[0]
    assert np.abs(expected - told["bytes"]).max() > 1e-3
    for name in ("pil", "array", "path"):
        assert told[name] == pytest.approx(expected, abs=1e-4)


def test_texts_and_scores_are_in_the_same_space(told, reference):
    texts = reference.texts(TEXTS[:2])
    np.testing.assert_allclose(told["texts"], texts, atol=1e-4)
    expected = {"text": texts[0] @ texts[0], "picture": texts[0] @ reference.images([picture(0)])[0]}
    assert {each["item_id"]: each["score"] for each in told["scores"]} == pytest.approx(expected, rel=1e-4)


def test_a_damaged_image_is_refused_by_its_place(told):
    assert told["refused"] == {"code": "INVALID_INPUT", "param": "items[1].images[0]"}
