"""The page on score and extract names every field of an answer; `test_following.py` runs its requests."""

from __future__ import annotations

from pathlib import Path

from sie_core.api.native import extract_schema

PAGE = (Path(__file__).parents[3] / "docs/use/operations.md").read_text(encoding="utf-8")


def test_the_page_names_every_field_of_an_answer():
    for name in ("EntityOutput", "RelationOutput", "ClassificationOutput", "ObjectOutput", "ExtractedItem"):
        for field in getattr(extract_schema, name).model_fields:
            assert f"`{field}`" in PAGE, f"{field} of {name} is not on the page"
