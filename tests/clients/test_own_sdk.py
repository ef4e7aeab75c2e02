"""Our own client against a live server: what its scripted tests cannot know of the server's side."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from PIL import Image
from sie_sdk import InputTooLongError, ModelLoadingError, RequestError, SIEAsyncClient, SIEClient
from sie_sdk.types import Item

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FAKE = "sie-fake/embedder"


def test_both_formats_and_both_shells_give_the_same_vectors(fake_server):
    texts = ["one", "two three", "four"]

    async def encoded() -> list[np.ndarray]:
        async with SIEAsyncClient(fake_server) as client:
            return [result["dense"] for result in await client.encode(FAKE, texts)]

    with SIEClient(fake_server) as packed, SIEClient(fake_server, wire_format="json") as spelled:
        reference = [result["dense"] for result in packed.encode(FAKE, texts)]
        in_json = [result["dense"] for result in spelled.encode(FAKE, texts)]
    for others in (in_json, asyncio.run(encoded())):
        for vector, other in zip(reference, others, strict=True):
            assert (vector.dtype, vector.shape) == (other.dtype, other.shape) == (np.float32, (32,))
            np.testing.assert_array_equal(vector, other)


def test_every_kind_of_output_arrives_as_arrays(fake_server):
    with SIEClient(fake_server) as client:
        result = client.encode(
            FAKE, Item(id="a", text="one two"), output_types=["dense", "sparse", "multivector"], output_dtype="float16"
        )
    assert result["id"] == "a"
    assert (result["dense"].shape, result["dense"].dtype) == ((32,), np.float16)
    assert result["sparse"]["indices"].dtype == np.int32
    assert result["sparse"]["values"].dtype == np.float16
    assert np.all(np.diff(result["sparse"]["indices"]) > 0)
    assert result["multivector"].shape[1:] == (16,)
    assert result["request"]["usage"]["input_tokens"] == 2
    assert result["timing"]["total_ms"] >= 0


def test_prompts_sizes_and_truncation_are_the_caller_s_choice(fake_server):
    long = " ".join(f"w{place}" for place in range(600))
    with SIEClient(fake_server) as client:
        plain = client.encode(FAKE, "one")
        query = client.encode(FAKE, "one", input_type="query")
        same = client.encode(FAKE, "one", is_query=True)
        assert not np.array_equal(plain["dense"], query["dense"])
        np.testing.assert_array_equal(query["dense"], same["dense"])
        assert client.encode(FAKE, "one", dimensions=8)["dense"].shape == (8,)
        end, start = (client.encode(FAKE, long, truncate=side) for side in ("end", "start"))
        assert end["truncated"] == start["truncated"] == {"tokens": 600, "kept": 512}
        assert not np.array_equal(end["dense"], start["dense"])
        assert "truncated" not in plain
        with pytest.raises(InputTooLongError) as caught:
            client.encode(FAKE, ["short", long], truncate="error")
    assert caught.value.param == "items[1].text"
    assert caught.value.model == FAKE


def test_both_formats_and_both_shells_score_and_extract_the_same(fake_server):
    documents, text = ["a red fox", "a house", Item(id="c", text="red")], "person=Ada in place=Rome, Ada-knows->Bo"

    def told(result):
        return {key: value for key, value in result.items() if key not in ("timing", "request")}

    async def asked() -> tuple[object, object]:
        async with SIEAsyncClient(fake_server) as client:
            return (
                told(await client.score("sie-fake/reranker", "red fox", documents)),
                told(await client.extract("sie-fake/extractor", text, labels=["person", "place"])),
            )

    seen = [asyncio.run(asked())]
    for wire_format in ("msgpack", "json"):
        with SIEClient(fake_server, wire_format=wire_format) as client:
            ranked = client.score("sie-fake/reranker", "red fox", documents)
            found = client.extract("sie-fake/extractor", text, labels=["person", "place"])
        assert ranked["timing"]["total_ms"] > 0
        assert found["request"]["usage"] == {"input_tokens": 4}
        seen.append((told(ranked), told(found)))
    assert seen[0] == seen[1] == seen[2]
    ranked, found = seen[0]
    assert [(entry["item_id"], entry["rank"]) for entry in ranked["scores"]] == [("item-0", 0), ("c", 1), ("item-1", 2)]
    assert [text[entity["start"] : entity["end"]] for entity in found["entities"]] == ["Ada", "Rome,"]
    assert text[slice(*found["relations"][0]["tail_span"])] == "Bo"


def test_an_image_gives_one_vector_however_its_pixels_are_held(fake_server, tmp_path):
    pixels = np.arange(75, dtype=np.uint8).reshape(5, 5, 3)
    image = Image.fromarray(pixels)
    with SIEClient(fake_server) as client:
        array = client.encode("sie-fake/media", Item(images=[pixels]))
        image.save(tmp_path / "image.png")
        file, data = (
            client.encode("sie-fake/media", Item(images=[each]))
            for each in (tmp_path / "image.png", (tmp_path / "image.png").read_bytes())
        )
        both = client.encode("sie-fake/media", Item(text="a caption", images=[image, pixels]))
    np.testing.assert_array_equal(file["dense"], data["dense"])
    assert array["dense"].shape == (16,)
    assert both["request"]["usage"] == {"input_tokens": 2, "images": 2}


def test_a_refused_request_names_its_field(fake_server):
    with SIEClient(fake_server) as client:
        for call, param in (
            ({"items": []}, "items"),
            ({"items": {"text": 7}}, "items[0].text"),
            ({"items": "x", "output_dtype": "bf16"}, "output_dtype"),
            ({"items": "x", "options": {"nonsense": 1}}, "options"),
        ):
            with pytest.raises(RequestError) as caught:
                client.encode(FAKE, **call)
            assert caught.value.code == "INVALID_INPUT"
            assert param in (caught.value.param or ""), caught.value
        with pytest.raises(RequestError) as caught:
            client.get_model("sie-fake/embeder")
        assert caught.value.code == "MODEL_NOT_FOUND"
        assert FAKE in str(caught.value)


def test_a_call_goes_on_while_its_model_loads_unless_it_has_no_budget(start_server, tmp_path):
    (tmp_path / "late.yaml").write_text(
        "sie_id: test/late\n"
        "package_backed: true\n"
        "tasks: { encode: { dense: { dim: 8 } } }\n"
        "profiles: { default: { adapter_path: fake, adapter_options: { loadtime: { load_s: 0.5 } } } }\n"
    )
    server = start_server({"SIE_MODELS_DIR": str(tmp_path)})
    with SIEClient(server.url) as client:
        with pytest.raises(ModelLoadingError) as caught:
            client.encode("test/late", "x", provision_timeout_s=0)
        assert caught.value.model == "test/late"
        assert client.encode("test/late", "x")["dense"].shape == (8,)
