"""What `docs/use/outputs.md` says of dtypes, MUVERA and SMVE is what they do."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from sie_core.catalog import parameters_of, parse_config
from sie_core.postprocess import OUTPUT_DTYPES
from sie_core.postprocess.derived.muvera import MUVERA, MuveraParameters
from sie_core.postprocess.derived.smve import SMVE, SmveParameters

PAGE = (Path(__file__).parents[3] / "docs/use/outputs.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ROWS = [[cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if "|" in line]


def test_the_table_of_dtypes_has_each_with_its_label_and_what_it_makes_of_the_row():
    told = {name: (label, row) for names, _, label, row, *_ in map(pad, ROWS) for name in names.split(", ")}
    given = np.array([0.5, -1, 0.25, 0], np.float32)
    for dtype in OUTPUT_DTYPES:
        label, row = told[dtype.name]
        assert label == dtype.label
        assert ast.literal_eval(row) == dtype.cast(given).tolist()


def pad(cells: list[str]) -> list[str]:
    return [*cells, "", "", ""][:4]


def test_bits_are_those_of_sentence_transformers_as_the_page_says():
    from sentence_transformers.util.quantization import quantize_embeddings

    rows = np.random.default_rng(0).standard_normal((5, 20)).astype(np.float32)
    (ours,) = (dtype.cast(rows) for dtype in OUTPUT_DTYPES if dtype.name == "binary")
    assert np.array_equal(ours, quantize_embeddings(rows, precision="ubinary"))
    assert np.array_equal(ours.astype(int) - 128, quantize_embeddings(rows, precision="binary"))


def test_the_example_makes_vectors_of_the_size_the_page_says():
    config = parse_config(yaml.safe_load(EXAMPLE), source="docs", folder=Path())
    assert set(config.profiles) == {"default", "muvera"}
    profile = config.profiles["muvera"]
    assert (profile.runtime["muvera"], profile.output_types) == (True, ("dense",))
    dims = MUVERA.create(parameters_of(MUVERA, profile), 128).dims
    assert f"{dims} dimensions" in PAGE


@pytest.mark.parametrize(("postprocessor", "parameters"), [(MUVERA, MuveraParameters()), (SMVE, SmveParameters())])
def test_the_options_are_the_parameters_and_state_their_defaults(postprocessor, parameters):
    described = {option.name: option.description for option in postprocessor.parameters}
    values = dataclasses.asdict(parameters)
    assert list(described) == list(values)
    for name, value in values.items():
        if value is not None:
            assert f"{str(value).lower()} unless set" in described[name]
