"""Texts with entities planted in them, of a closed little world that a tiny model learns in seconds."""

from __future__ import annotations

import random
from dataclasses import dataclass

FIRST = ["Ada", "Jose\u0301", "Noor", "Wei", "Ulla", "Zoe\u0308"]
LAST = ["Okafor", "Lindqvist", "Marsh", "Tanaka", "Novak"]
CITIES = ["東京", "Zürich", "Nairobi", "Reykjavi\u0301k", "Cusco"]
ANIMALS = ["otter", "lynx", "🦊", "heron"]
MAKERS = ["Zenit", "Orbis", "Kestrel"]
LETTERS = ["X", "Q", "V"]
DIGITS = ["3", "7", "9"]
FILLER = [
    *("the", "of", "and", "in", "with", "river", "note", "old", "new", "quiet", "road", "saw", "went", "to", "by"),
    *(".", ",", ";", "(", ")", "👩‍🔬", "❤️", "検索", "です", "cafe\u0301", "e\u0301", "№", "—", "🇫🇷", "\u200b"),
]
LABELS = ("person", "city", "animal", "product")
WORDS = [*FIRST, *LAST, *CITIES, *ANIMALS, *MAKERS, *LETTERS, *DIGITS, *FILLER, *LABELS, "food", "date", "name"]

Planted = tuple[int, int, str]
"""Start, end and label."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    planted: list[Planted]


def entity(label: str, random: random.Random) -> str:
    pick = random.choice
    return {
        "person": lambda: f"{pick(FIRST)} {pick(LAST)}",
        "city": lambda: pick(CITIES),
        "animal": lambda: pick(ANIMALS),
        "product": lambda: f"{pick(MAKERS)} {pick(LETTERS)} {pick(DIGITS)}",
    }[label]()


def plant(seed: int, *, characters: int, every: int = 8) -> Text:
    """Write about `characters` of text with an entity after four to `every` words."""
    chance = random.Random(seed)
    text, planted = "", []
    while len(text) < characters:
        text += " ".join(chance.choice(FILLER) for _ in range(chance.randint(4, every))) + " "
        label = chance.choice(LABELS)
        found = entity(label, chance)
        planted.append((len(text), len(text) + len(found), label))
        text += found + chance.choice([" ", " ", "  ", "\n"])
    return Text(text + "the note", planted)
