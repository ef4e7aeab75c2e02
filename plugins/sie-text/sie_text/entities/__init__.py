"""Entities by the labels of tokens: texts to windows of tokens, and the logits of these back to spans of the text.

Words, groups and scores follow transformers' pipeline `token-classification`.

- `TagSet`: what the labels of a model say
- `EntityChoice`: what one request asks for
- `EntityPreparation`: items to token sequences, long texts in windows
- `mark` and `read_entities`: logits to the labels of tokens, and these to entities
"""

from sie_text.entities.choice import EntityChoice
from sie_text.entities.marks import Marks, joined_marks, mark
from sie_text.entities.preparation import EntityPreparation, Window
from sie_text.entities.reading import read_entities
from sie_text.entities.tags import TagSet

__all__ = [
    "EntityChoice",
    "EntityPreparation",
    "Marks",
    "TagSet",
    "Window",
    "joined_marks",
    "mark",
    "read_entities",
]
