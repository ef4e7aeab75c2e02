"""Files of images: what is read, as what, and what is refused before or while it is decoded."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from sie_core.contracts import MAX_IMAGE_ASPECT, MAX_IMAGE_PIXELS, MAX_IMAGE_SCANS, Adapter, InvalidInput, Item, Media
from tests.pytorch.encoders import task
from tests.pytorch.vision.support import ask, encoded, image_item, picture

Served = Callable[[str], Adapter]
IMAGE = picture()


@pytest.fixture(scope="module")
def adapter(served: Served) -> Adapter:
    return served("clip")


def refused(adapter: Adapter, *items: Item) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        list(adapter.prepare([Item(text="a text"), *items], task()))
    assert caught.value.code == "INVALID_INPUT"
    assert caught.value.param is not None
    assert caught.value.message.startswith(caught.value.param)
    return caught.value


def header(width: int, height: int) -> bytes:
    """Begin a PNG of that size; its pixels are compressed to nearly nothing, and never all written here."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(999)))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG", "AVIF"])
@pytest.mark.parametrize("said", ["", "{}", "image/{}"])
def test_a_file_is_read_by_its_bytes_whether_its_format_is_said_or_not(form: str, said: str, adapter: Adapter) -> None:
    data = encoded(IMAGE, form)
    vector = ask(adapter, [image_item(data, said.format(form.lower()) or None)])
    opened = Image.open(io.BytesIO(data)).convert("RGB")
    np.testing.assert_allclose(vector, ask(adapter, [opened]), atol=1e-5)


def test_a_photo_of_several_pictures_is_the_first(adapter: Adapter) -> None:
    data = encoded(IMAGE, "MPO", save_all=True, append_images=[picture(1)])
    assert Image.open(io.BytesIO(data)).n_frames == 2
    photo = ask(adapter, [image_item(data, "jpg")])
    np.testing.assert_allclose(photo, ask(adapter, [Image.open(io.BytesIO(data)).convert("RGB")]), atol=1e-5)


def test_an_orientation_is_not_applied_as_in_the_reference(adapter: Adapter) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    turned = ask(adapter, [image_item(encoded(IMAGE, "PNG", exif=exif))])
    np.testing.assert_array_equal(turned, ask(adapter, [IMAGE]))


@pytest.mark.parametrize("data", [b"", b"corrupt", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg/>"])
def test_what_is_no_image_is_refused_with_the_formats_there_are(data: bytes, adapter: Adapter) -> None:
    error = refused(adapter, image_item(IMAGE), image_item(data))
    assert error.param == "items[2].images[0]"
    assert "JPEG, PNG, WEBP" in error.message


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG", "AVIF"])
def test_a_file_that_is_cut_off_is_refused(form: str, adapter: Adapter) -> None:
    data = encoded(picture(1, shape=(120, 90)), form)
    for part in (2, 3, 10):
        assert refused(adapter, image_item(data[: len(data) // part])).param == "items[1].images[0]"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", ["PNG", "TIFF", "GIF", "WEBP", "JPEG", "BMP", "AVIF"])
def test_a_file_with_a_changed_byte_is_read_or_refused_and_never_fails_otherwise(form: str, adapter: Adapter) -> None:
    generator, data = np.random.default_rng(3), encoded(IMAGE, form)
    outcomes = set()
    for place in generator.integers(0, len(data), 60):
        broken = bytearray(data)
        broken[place] ^= int(generator.integers(1, 256))
        outcomes.add(outcome(adapter, bytes(broken)))
    assert outcomes <= {"read", "items[0].images[0]"}


def outcome(adapter: Adapter, data: bytes) -> str | None:
    try:
        list(adapter.prepare([image_item(data)], task()))
    except InvalidInput as error:
        return error.param
    return "read"


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_is_refused_by_its_header(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(image: Image.Image) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
    for width, height in ((9460, 9460), (60_000, 60_000), (2**31 - 1, 2**31 - 1)):
        assert width * height > MAX_IMAGE_PIXELS
        error = refused(adapter, image_item(header(width, height)))
        assert error.param == "items[1].images[0]"
        assert "89,478,485" in error.message
    error = refused(adapter, image_item(header(MAX_IMAGE_ASPECT + 1, 1)))
    assert f"{MAX_IMAGE_ASPECT} times" in error.message


def test_a_request_of_many_large_images_is_refused_as_a_whole(
    adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sie_pytorch.families.vision.images.MAX_REQUEST_PIXELS", 3 * 20 * 20)
    small = image_item(picture(shape=(20, 20)))
    assert len(list(adapter.prepare([small] * 3, task()))) == 3
    error = refused(adapter, small, small, small, small)
    assert error.param == "items[4].images[0]"
    assert "split the request" in error.message


def test_the_longest_picture_that_is_allowed_is_read(adapter: Adapter) -> None:
    assert ask(adapter, [picture(shape=(1, MAX_IMAGE_ASPECT)), picture(shape=(MAX_IMAGE_ASPECT, 1))]).shape[0] == 2


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_several_pictures_in_one_file_are_refused(form: str, adapter: Adapter) -> None:
    data = encoded(IMAGE, form, save_all=True, append_images=[picture(5, shape=(50, 70))])
    assert "several pictures" in refused(adapter, image_item(data)).message


def test_a_format_that_contradicts_the_bytes_is_refused(adapter: Adapter) -> None:
    for said in ("png", "image/png", "heic", ".webp"):
        error = refused(adapter, image_item(encoded(IMAGE, "JPEG"), said))
        assert error.param == "items[1].images[0]"
        assert "JPEG" in error.message
        assert repr(said) in error.message


@pytest.mark.parametrize(
    ("item", "param", "problem"),
    [
        (Item(), "items[1]", "neither"),
        (Item(text="a", images=(Media(b"x"),)), "items[1]", "a text and an image"),
        (Item(images=(Media(b"x"), Media(b"y"))), "items[1].images", "2 images"),
        (Item(token_ids=(1, 2)), "items[1].token_ids", "token ids"),
    ],
)
def test_an_item_is_one_text_or_one_image(item: Item, param: str, problem: str, adapter: Adapter) -> None:
    error = refused(adapter, item)
    assert error.param == param
    assert problem in error.message


def test_a_text_that_is_refused_is_named_by_its_place_among_all_items(adapter: Adapter) -> None:
    items = [image_item(IMAGE), Item(text="a"), image_item(IMAGE), Item(text="\ud800")]
    with pytest.raises(InvalidInput) as caught:
        list(adapter.prepare(items, task()))
    assert caught.value.param == "items[3].text"
    with pytest.raises(InvalidInput) as caught:
        list(adapter.prepare([image_item(IMAGE), Item(text="a fox and " * 20)], task(truncate="error")))
    assert (caught.value.param, caught.value.code) == ("items[1].text", "INPUT_TOO_LONG")


def scans(image: Image.Image, count: int) -> bytes:
    """Write a progressive JPEG and repeat its last scan."""
    data = encoded(image, "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * count + b"\xff\xd9"


def with_chunks(data: bytes, count: int) -> bytes:
    """Put chunks that say nothing behind the header of a PNG."""
    return data[:33] + (b"\0\0\0\0abCd" + struct.pack(">I", zlib.crc32(b"abCd"))) * count + data[33:]


def with_comment(data: bytes, blocks: int) -> bytes:
    """Put a comment of blocks of one byte before the end of a GIF."""
    return data[:-1] + b"\x21\xfe" + b"\x01a" * blocks + b"\0;"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (scans(IMAGE, 6_000), f"more than {MAX_IMAGE_SCANS} scans"),
        (encoded(IMAGE, "JPEG")[:2] + b"\xff\xfe\0\2" * 70_000 + encoded(IMAGE, "JPEG")[2:], "65,536 segments"),
        (with_chunks(encoded(IMAGE), 70_000), "65,536 chunks"),
        (with_comment(encoded(IMAGE, "GIF"), 5_000), "4,096 blocks"),
    ],
    ids=["scans", "segments", "chunks", "blocks"],
)
def test_a_file_of_very_many_parts_is_refused_before_it_is_decoded(
    data: bytes, problem: str, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("it is opened"))
    error = refused(adapter, image_item(data))
    assert error.param == "items[1].images[0]"
    assert problem in error.message


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (encoded(picture(shape=(300, 200)), "JPEG", progressive=True, comment=b"\xff\xda" * 200), "JPEG"),
        (scans(IMAGE, 20), "JPEG"),
        (with_chunks(encoded(IMAGE), 200), "PNG"),
        (with_comment(encoded(IMAGE, "GIF"), 200), "GIF"),
    ],
)
def test_a_file_of_as_many_parts_as_encoders_write_is_read(data: bytes, form: str, adapter: Adapter) -> None:
    assert ask(adapter, [image_item(data, form)]).shape[0] == 1
