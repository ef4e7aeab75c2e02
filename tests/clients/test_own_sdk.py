"""Our own client against a live server: what its scripted tests cannot know of the server's side."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from PIL import Image
from sie_sdk import InputTooLongError, ModelLoadingError, RequestError, SIEAsyncClient, SIEClient, SIEConnectionError
from sie_sdk.types import Item

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FAKE = "sie-fake/embedder"


def test_both_formats_and_both_shells_give_the_same_vectors(served_fakes):
    texts = ["one", "two three", "four"]

    async def encoded() -> list[np.ndarray]:
        async with SIEAsyncClient(served_fakes) as client:
            return [result["dense"] for result in await client.encode(FAKE, texts)]

    with SIEClient(served_fakes) as packed, SIEClient(served_fakes, wire_format="json") as spelled:
        reference = [result["dense"] for result in packed.encode(FAKE, texts)]
        in_json = [result["dense"] for result in spelled.encode(FAKE, texts)]
    for others in (in_json, asyncio.run(encoded())):
        for vector, other in zip(reference, others, strict=True):
            assert (vector.dtype, vector.shape) == (other.dtype, other.shape) == (np.float32, (32,))
            np.testing.assert_array_equal(vector, other)


def test_every_kind_of_output_arrives_as_arrays(served_fakes):
    with SIEClient(served_fakes) as client:
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


def test_prompts_sizes_and_truncation_are_the_caller_s_choice(served_fakes):
    long = " ".join(f"w{place}" for place in range(600))
    with SIEClient(served_fakes) as client:
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


def test_both_formats_and_both_shells_score_and_extract_the_same(served_fakes):
    documents, text = ["a red fox", "a house", Item(id="c", text="red")], "person=Ada in place=Rome, Ada-knows->Bo"

    def told(result):
        return {key: value for key, value in result.items() if key not in ("timing", "request")}

    async def asked() -> tuple[object, object]:
        async with SIEAsyncClient(served_fakes) as client:
            return (
                told(await client.score("sie-fake/reranker", "red fox", documents)),
                told(await client.extract("sie-fake/extractor", text, labels=["person", "place"])),
            )

    seen = [asyncio.run(asked())]
    for wire_format in ("msgpack", "json"):
        with SIEClient(served_fakes, wire_format=wire_format) as client:
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


def test_an_image_gives_one_vector_however_its_pixels_are_held(served_fakes, tmp_path):
    pixels = np.arange(75, dtype=np.uint8).reshape(5, 5, 3)
    image = Image.fromarray(pixels)
    with SIEClient(served_fakes) as client:
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


FAULTY = ["one", "two [nan]", Item(id="third", text="three [crash]"), "four", *(f"word {place}" for place in range(60))]


def test_many_items_come_as_one_matrix_and_those_that_fail_are_told_by_both_shells(served_fakes):
    settings = {"batch_size": 16, "parallel": 3, "progress": False}

    async def asked() -> object:
        async with SIEAsyncClient(served_fakes) as client:
            return await client.encode_many(f"{FAKE}:faulty", FAULTY, **settings)

    with SIEClient(served_fakes) as client:
        alone = client.encode(FAKE, ["one", "four", "word 59"])
        seen = [client.encode_many(f"{FAKE}:faulty", FAULTY, **settings), asyncio.run(asked())]
    for many in seen:
        assert [(each.place, each.id, each.error.code) for each in many.failed] == [
            (1, None, "NON_FINITE_OUTPUT"),
            (2, "third", "INFERENCE_ERROR"),
        ]
        matrix = many.matrix(missing=np.nan)
        assert (matrix.shape, np.isnan(matrix).all(1).nonzero()[0].tolist()) == ((64, 32), [1, 2])
        np.testing.assert_array_equal(matrix[[0, 3, 63]], np.stack([result["dense"] for result in alone]))


def test_more_documents_than_a_request_takes_are_ranked(served_fakes):
    documents = [f"red {place}" for place in range(1100)] + ["a red fox"]
    with SIEClient(served_fakes) as client:
        many = client.score_many(
            "sie-fake/reranker", [("red fox", documents), ("house", ["a house"])], batch_size=500, progress=False
        )
    assert (many.failed, many.matrix().shape) == ([], (2, 1101))
    assert many.results[0]["scores"][0] == {"item_id": "item-1100", "score": 1.0, "rank": 0}
    assert (many.matrix()[0, :1100] == 0.5).all()
    assert many.matrix()[1, 0] == 1


def test_the_tokens_of_texts_and_the_server_s_health_are_told(served_fakes):
    with SIEClient(served_fakes) as client:
        (one, two), three = client.tokenize(FAKE, ["one two", "three"])
        assert [two["text"], two["start"], two["stop"], two["special"]] == ["two", 4, 7, False]
        assert client.tokenize(FAKE, "one two") == [one, two]
        assert [token["text"] for token in three] == ["three"]
        with pytest.raises(RequestError) as caught:
            client.tokenize("sie-fake/embeder", "x")
        assert (caught.value.code, caught.value.status_code) == ("MODEL_NOT_FOUND", 404)
        health = client.health()
    assert health["status"] == "healthy"
    assert health["type"] in ("standalone", "gateway")
    assert FAKE in [model["name"] for model in health["models"]]


def test_a_call_s_own_timeout_ends_it_and_no_other(served_fakes):
    slow = {"latency_ms": 3000}
    with SIEClient(served_fakes) as client:
        with pytest.raises(SIEConnectionError, match="ReadTimeout"):
            client.encode(f"{FAKE}:slow", "x", options=slow, timeout_s=0.2)
        assert client.encode(FAKE, "x")["dense"].shape == (32,)


def test_a_refused_request_names_its_field(served_fakes):
    with SIEClient(served_fakes) as client:
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
