"""Multi-vectors with the published client: what it gets of ours, and the scores it gives them."""

import numpy as np
import pytest
from sie_sdk import SIEClient
from sie_sdk.scoring import maxsim, maxsim_batch

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_scores_are_those_of_the_published_client(published_sdk, dtype):
    rng = np.random.default_rng(3)
    scale = 60 if dtype == "int8" else 1
    queries, documents = (
        [(scale * rng.uniform(-1, 1, (tokens, 16))).astype(dtype) for tokens in sizes] for sizes in ((3, 8), (1, 5, 40))
    )

    told = published_sdk.run(
        "published_maxsim.py",
        queries=[query.tolist() for query in queries],
        documents=[document.tolist() for document in documents],
        dtype=dtype,
    )

    assert maxsim(queries[0], documents) == pytest.approx(told["maxsim"], rel=1e-6)
    assert maxsim(queries[0], documents[0]) == pytest.approx(told["one"], rel=1e-6)
    assert maxsim_batch(queries, documents) == pytest.approx(np.array(told["batch"]), rel=1e-6)


DTYPES = ["float32", "float16", "int8", "uint8", "binary", "ubinary"]
MODEL = "sie-fake/tokens"


def test_it_gets_every_dtype_and_what_is_made_of_a_multivector(published_sdk, served_fakes):
    text = "a red fox"
    told = published_sdk.run("published_multivector.py", url=served_fakes, model=MODEL, text=text, dtypes=DTYPES)

    def same(theirs, ours):
        assert theirs["dtype"] == str(ours.dtype)
        np.testing.assert_allclose(theirs["values"], ours.astype(float), atol=1e-6)

    with SIEClient(served_fakes) as own:
        for dtype in DTYPES:
            ours = own.encode(MODEL, text, output_types=["multivector"], output_dtype=dtype)
            same(told["multivector"][dtype], ours["multivector"])
            same(told["dense"][dtype], own.encode(f"{MODEL}:muvera", text, output_dtype=dtype)["dense"])
        same(told["query"], own.encode(MODEL, text, output_types=["multivector"], is_query=True)["multivector"])
        same(told["selected"], own.encode(f"{MODEL}:muvera", text)["dense"])
        assert told["sparse"] == own.encode(f"{MODEL}:smve", text)["sparse"]["indices"].tolist()
