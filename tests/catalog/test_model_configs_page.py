"""What `docs/use/model-configs.md` tells operators is what the schema and the catalog do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from sie_pytorch.plugin import sie_model_families

from sie_core.catalog import Catalog, check_profile, read_config
from sie_core.catalog.configs.schema import ModelFile, ProfileFile, Tasks
from sie_core.catalog.options.engine_options import ENGINE_OPTIONS
from sie_core.contracts import Operation

PAGE = (Path(__file__).parents[2] / "docs/use/model-configs.md").read_text(encoding="utf-8")
SMALL, LEGAL, EXAMPLE = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_loads_and_says_what_the_page_says(write_config: Callable[..., Path], tmp_path: Path) -> None:
    config = read_config(write_config("acme-search", EXAMPLE))
    assert Path(str(config.weights_path)).resolve() == (tmp_path / "models/weights/acme-search").resolve()
    assert config.accept_token_ids
    default, raw, exact = (config.profiles[name] for name in ("default", "raw", "exact"))
    assert raw.runtime == {"normalize": False}
    assert (raw.compute_precision, raw.max_batch_cost) == (default.compute_precision, default.max_batch_cost)
    assert exact.runtime == default.runtime
    assert (exact.compute_precision, exact.max_batch_cost) == ("float32", 4096)


def test_the_opening_serves_a_model_of_the_hub_with_an_adapter_and_a_profile(write_config: Callable[..., Path]) -> None:
    small, legal = (read_config(write_config(name, text)) for name, text in (("small", SMALL), ("legal", LEGAL)))
    assert (small.id, small.hf_id, set(small.profiles)) == ("acme/small", "BAAI/bge-small-en-v1.5", {"default"})
    assert (legal.id, set(legal.loras)) == ("acme/legal-search", {"contracts"})
    assert legal.profiles["exact"].compute_precision == "float32"


def test_the_options_of_the_example_are_known_to_the_family_that_serves_text_encoders(
    write_config: Callable[..., Path],
) -> None:
    (family,) = (each for each in sie_model_families() if each.id == "pytorch")
    for profile in read_config(write_config("acme-search", EXAMPLE)).profiles.values():
        assert check_profile(family, profile) == ()


def test_the_layout_of_the_page_serves_the_names_of_the_page(
    build: Callable[..., Catalog], write_config: Callable[..., Path], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    for folder in ("tiny-bert", "acme/embed-small", "weights/acme-search"):
        write_weights(tmp_path / "models" / folder)
    write_config("acme-search", EXAMPLE)
    catalog = build()
    named = {"acme/search", "acme/search:raw", "acme/search:exact", "tiny-bert", "acme/embed-small"}
    assert set(catalog.entries) == named
    assert catalog.problems == ()


@pytest.mark.parametrize("model", [ModelFile, ProfileFile, Tasks])
def test_every_field_of_the_schema_is_on_the_page(model: type[ModelFile]) -> None:
    names = {"sie_id" if name == "id" else name for name in model.model_fields}
    assert [name for name in names if not re.search(rf"`(\w+\.)?{name}(\.\w+|: true)?`", PAGE)] == []


def test_the_options_of_every_family_are_on_the_page() -> None:
    assert [name for name in ENGINE_OPTIONS if f"| `{name}` |" not in PAGE] == []
    for name, option in ENGINE_OPTIONS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
        every = set(option.operations) == set(get_args(Operation))
        assert row.endswith("| all |" if every else f"| {', '.join(f'`{each}`' for each in option.operations)} |"), row
