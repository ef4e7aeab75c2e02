"""The options of the family of images and texts, each with the stage that reads it."""

from __future__ import annotations

from dataclasses import replace

from sie_text.options import AUTO_MAP, LENGTH, NORMALIZE, PROMPT_OPTIONS, SIMILARITY

OPTIONS = (replace(NORMALIZE, stage="finish"), *PROMPT_OPTIONS, LENGTH, SIMILARITY, AUTO_MAP)
"""Options of the family `pytorch-vision`. Prompts and lengths concern texts only."""
