"""CLIP and SigLIP behind a live server, asked by our own client: vectors, scores, and what is refused."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from sie_sdk import RequestError, SIEClient
from sie_sdk.types import Item

from tests.conftest import run_server
from tests.pytorch.vision.support import TEXTS, Reference, encoded, picture, pictures, write_clip, write_siglip

KINDS = ("clip", "siglip")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vision")
    write_clip(folder / "models/test/clip")
    write_siglip(folder / "models/test/siglip")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[SIEClient]:
    with run_server(folder, {"SIE_IMAGE_WORKERS": "2"}) as server, SIEClient(server.url) as client:
        yield client


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_images_of_one_request_come_back_in_their_order(kind: str, client: SIEClient, folder: Path) -> None:
    theirs = Reference(folder / "models/test" / kind)
    items = [Item(text=TEXTS[0]), Item(images=[picture(0)]), Item(text=TEXTS[1]), Item(images=[picture(1)])]
    found = np.stack([result["dense"] for result in client.encode(f"test/{kind}", items)])
    np.testing.assert_allclose(found[::2], theirs.texts(TEXTS[:2]), atol=1e-4)
    np.testing.assert_allclose(found[1::2], theirs.images([picture(0), picture(1)]), atol=1e-4)


def test_an_image_is_the_same_however_it_is_held(client: SIEClient, folder: Path) -> None:
    image = picture(0)
    (folder / "image.png").write_bytes(encoded(image))
    held = [image, np.asarray(image), encoded(image), folder / "image.png", {"data": encoded(image), "format": "png"}]
    results = client.encode("test/clip", [Item(images=[each]) for each in held])
    for result in results:
        np.testing.assert_allclose(result["dense"], results[0]["dense"], atol=1e-5)
    assert results[0]["request"]["usage"] == {"input_tokens": 0, "images": len(held)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_scores_images_as_the_model_itself_does(kind: str, client: SIEClient, folder: Path) -> None:
    theirs = Reference(folder / "models/test" / kind)
    text, images = (torch.from_numpy(part) for part in (theirs.texts(TEXTS[:1]), theirs.images(pictures())))
    expected = torch.cosine_similarity(text, images).numpy()
    documents = [Item(id=str(place), images=[image]) for place, image in enumerate(pictures())]
    ranked = client.score(f"test/{kind}", TEXTS[0], documents, options={"normalize": True})["scores"]
    assert [int(each["item_id"]) for each in ranked] == list(np.argsort(-expected))
    assert [each["score"] for each in ranked] == pytest.approx(sorted(expected, reverse=True), abs=1e-5)
    raw = client.score(f"test/{kind}", TEXTS[0], documents)["scores"]
    assert [each["score"] for each in raw] == pytest.approx(
        sorted((text @ images.T)[0].tolist(), reverse=True), rel=1e-4
    )


def test_an_image_scores_texts(client: SIEClient, folder: Path) -> None:
    theirs = Reference(folder / "models/test/clip")
    expected = theirs.images([picture(0)]) @ theirs.texts(TEXTS[:3]).T
    ranked = client.score("test/clip", Item(images=[picture(0)]), list(TEXTS[:3]))["scores"]
    assert [each["item_id"] for each in ranked] == [f"item-{place}" for place in np.argsort(-expected[0])]


def test_concurrent_requests_of_both_kinds_get_their_own_vectors(client: SIEClient, folder: Path) -> None:
    theirs = Reference(folder / "models/test/clip")
    texts, images = theirs.texts(TEXTS[:4]), theirs.images(pictures()[:4])

    def ask(place: int) -> np.ndarray:
        item = Item(text=TEXTS[place // 2]) if place % 2 == 0 else Item(images=[picture(place // 2)])
        return client.encode("test/clip", item)["dense"]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    np.testing.assert_allclose(np.stack(found[::2]), texts, atol=1e-4)
    np.testing.assert_allclose(np.stack(found[1::2]), images, atol=1e-4)


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (Item(images=[b"\x89PNG\r\n\x1a\n and no more"]), "items[1].images[0]"),
        (Item(images=[encoded(picture(0))[:200]]), "items[1].images[0]"),
        (Item(images=[encoded(picture(0)), encoded(picture(1))]), "items[1].images"),
        (Item(text="a caption", images=[encoded(picture(0))]), "items[1]"),
        (Item(text="of", images=[]), None),
        (Item(audio=b"RIFF"), "items[1].audio"),
    ],
)
def test_what_cannot_be_seen_is_refused_by_its_place(item: Item, param: str | None, client: SIEClient) -> None:
    if param is None:
        assert len(client.encode("test/clip", [Item(text="a"), item])) == 2
        return
    with pytest.raises(RequestError) as refused:
        client.encode("test/clip", [Item(text="a"), item])
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", param)


def test_a_query_that_cannot_be_seen_is_named(client: SIEClient) -> None:
    with pytest.raises(RequestError) as refused:
        client.score("test/clip", Item(images=[b"no image"]), ["a"])
    assert refused.value.param == "query.images[0]"


def test_the_model_says_what_it_reads_and_gives(client: SIEClient) -> None:
    model = client.get_model("test/clip")
    assert (model["inputs"], model["outputs"]) == (["text", "image"], ["dense"])
