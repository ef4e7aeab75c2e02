"""Images, clips and documents from whatever a caller has, as what travels."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sie_sdk._requests.media import image_format, item_media, png
from sie_sdk.types import Item

PIXELS = np.random.default_rng(3).integers(0, 256, (5, 7, 3), dtype=np.uint8)
JPEG = b"\xff\xd8\xff\xe0 and so on"


def decoded(media):
    assert media["format"] == "png"
    return np.asarray(Image.open(io.BytesIO(media["data"])))


def sent(image):
    (media,) = item_media({"images": [image]}, "items[0]")["images"]
    return media


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4), (1, 1)])
def test_an_array_travels_without_losing_a_pixel(shape):
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    grey = pixels.reshape(shape[:2]) if shape[2:] == (1,) else pixels
    assert np.array_equal(decoded(sent(pixels)), grey)
    assert np.array_equal(decoded(sent(pixels[::-1])), grey[::-1])


@pytest.mark.parametrize(
    "image",
    [
        PIXELS,
        PIXELS[..., 0],
        "fox.jpg",
        Path("fox.jpg"),
        JPEG,
        bytearray(JPEG),
        {"data": JPEG},
        Image.new("RGB", (3, 3)),
    ],
    ids=lambda image: type(image).__name__,
)
def test_one_image_where_a_list_belongs_is_refused_with_the_remedy(image):
    with pytest.raises(TypeError, match=r"items\[2\]\.images .*give a list of images"):
        item_media({"images": image}, "items[2]")


def test_a_stack_of_pictures_is_a_list_of_them():
    stack = np.stack([PIXELS, PIXELS[::-1]])
    images = item_media({"images": stack}, "items[0]")["images"]
    assert [np.array_equal(decoded(image), one) for image, one in zip(images, stack, strict=True)] == [True, True]


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "1", "P"])
def test_a_pillow_image_travels_without_losing_a_pixel(mode):
    image = Image.fromarray(PIXELS).convert(mode)
    assert np.array_equal(decoded(sent(image)), np.asarray(image))


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "F", "HSV"])
def test_a_mode_that_png_has_not_becomes_rgb(mode):
    image = Image.fromarray(PIXELS).convert(mode)
    assert np.array_equal(decoded(sent(image)), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["PA", "RGBa", "La"])
def test_a_mode_that_png_has_not_keeps_its_transparency(mode):
    image = Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]))
    image = image.convert("LA").convert("La") if mode == "La" else image.convert(mode)
    whole = image.convert("LA" if mode == "La" else "RGBA")
    assert np.array_equal(decoded(sent(image)), np.asarray(whole))


def test_a_file_travels_as_it_is(tmp_path: Path):
    file = tmp_path / "picture.jpg"
    file.write_bytes(JPEG)
    for image in (
        file,
        str(file),
        JPEG,
        bytearray(JPEG),
        memoryview(JPEG),
        {"data": JPEG},
        {"data": JPEG, "format": "jpg"},
    ):
        assert sent(image) == {"data": JPEG, "format": "jpeg"}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\xff\xd8\xff", "jpeg"), (b"GIF89a", "gif"), (b"GIF87a", "gif"), (b"RIFF0000WEBPVP8", "webp"), (b"BM", "bmp"),
        (b"II*\x00", "tiff"), (b"MM\x00*", "tiff"), (png(PIXELS), "png"), (b"RIFF0000WAVE", None), (b"", None),
    ],
)  # fmt: skip
def test_the_first_bytes_tell_the_format(data, name):
    assert image_format(data) == name


def test_bytes_of_no_known_format_travel_as_they_were_called():
    assert sent({"data": b"odd", "format": "heic"}) == {"data": b"odd", "format": "heic"}
    assert sent(b"odd") == {"data": b"odd"}


def test_a_format_that_the_bytes_contradict_is_refused():
    with pytest.raises(ValueError, match=r"items\[0\].images\[0\] is said to be png and its bytes are jpeg"):
        sent({"data": JPEG, "format": "png"})


def test_other_media_take_the_format_of_their_file_s_name(tmp_path: Path):
    clip, page = tmp_path / "clip.WAV", tmp_path / "page.markdown"
    clip.write_bytes(b"RIFF")
    page.write_bytes(b"# Title")
    item = item_media({"audio": clip, "document": str(page), "video": {"data": b"x", "format": "mp4"}}, "query")
    assert item == {
        "audio": {"data": b"RIFF", "format": "wav"},
        "document": {"data": b"# Title", "format": "md"},
        "video": {"data": b"x", "format": "mp4"},
    }


def test_the_caller_s_item_is_left_as_it_was():
    item = Item(id="a", text="t", images=[PIXELS])
    ready = item_media(item, "items[0]")
    assert item["images"][0] is PIXELS
    assert {name: ready[name] for name in ("id", "text")} == {"id": "a", "text": "t"}
    assert item_media({"images": None, "audio": None}, "items[0]") == {"images": None, "audio": None}


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (PIXELS.astype(np.float32), "dtype float32"),
        (PIXELS[None], r"shape \(1, 5, 7, 3\)"),
        (np.zeros((4, 4, 5), np.uint8), "1 to 4 channels"),
        (np.zeros((0, 4), np.uint8), r"shape \(0, 4\)"),
        ("/no/such/file.png", "/no/such/file.png"),
        ("a\0b", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(image, told):
    with pytest.raises(ValueError, match=told) as caught:
        sent(image)
    assert "items[0].images[0]" in str(caught.value)


@pytest.mark.parametrize("image", [7, None, {"format": "png"}, {"data": "text"}, ["a"]])
def test_what_is_no_image_is_a_type_error(image):
    with pytest.raises(TypeError, match=r"items\[0\].images\[0\]"):
        sent(image)


def test_media_are_base64_in_json_and_bytes_in_msgpack(rehearsal):
    rehearsal.encode(rehearsal.vectors(), items=[Item(images=[JPEG])])
    assert rehearsal.sent()["items"] == [{"images": [{"data": JPEG, "format": "jpeg"}]}]
    rehearsal.encode(rehearsal.vectors(), items=[Item(images=[JPEG])], client={"wire_format": "json"})
    spelled = base64.b64encode(JPEG).decode()
    assert rehearsal.sent()["items"] == [{"images": [{"data": spelled, "format": "jpeg"}]}]
