"""Score with the published client; tell the scores as JSON."""

import json
import sys

import numpy as np
from sie_sdk.scoring import maxsim, maxsim_batch


def main(queries, documents, dtype):
    queries = [np.array(query, dtype) for query in queries]
    documents = [np.array(document, dtype) for document in documents]
    return {
        "maxsim": [float(score) for score in maxsim(queries[0], documents)],
        "one": [float(score) for score in maxsim(queries[0], documents[0])],
        "batch": maxsim_batch(queries, documents).tolist(),
    }


print(json.dumps(main(**json.load(sys.stdin))))
