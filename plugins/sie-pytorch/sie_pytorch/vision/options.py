"""The options of the family of images and texts, each with the stage that reads it."""

from __future__ import annotations

from dataclasses import replace

from sie_pytorch.options import LENGTH, NORMALIZE, SIMILARITY, WORDS

OPTIONS = (replace(NORMALIZE, stage="finish"), *WORDS, LENGTH, SIMILARITY)
"""Of the family `pytorch-vision`. Words and lengths are of texts alone."""
