"""Late interaction in our client gives the scores the published one gives."""

import numpy as np
import pytest
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
