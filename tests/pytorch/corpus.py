"""Texts for the tests of sie-pytorch: many scripts, emoji, awkward white space; the same ones every time."""

from __future__ import annotations

import numpy as np

WORDS = {
    "latin": [
        "the",
        "search",
        "engine",
        "ranks",
        "every",
        "document,",
        "naïve",
        "café",
        "Straße",
        "œuvre",
        "İstanbul",
        "ñandú",
        "don't",
        "e-mail",
        "x1",
        "3.14",
    ],
    "cyrillic": ["поисковая", "система", "ранжирует", "документы", "быстро", "ёлка"],
    "greek": ["η", "μηχανή", "αναζήτησης", "ταξινομεί", "τα", "έγγραφα"],
    "arabic": ["محرك", "البحث", "يرتب", "المستندات", "بسرعة"],
    "hebrew": ["מנוע", "החיפוש", "מדרג", "מסמכים"],
    "devanagari": ["खोज", "इंजन", "दस्तावेज़ों", "को", "क्रम", "देता", "है"],
    "chinese": ["搜索引擎", "对文档", "进行", "排序", "。"],
    "japanese": ["検索エンジンは", "ドキュメントを", "ランク付けする", "、"],
    "korean": ["검색", "엔진은", "문서를", "정렬한다"],
    "thai": ["เครื่องมือค้นหา", "จัดอันดับ", "เอกสาร"],
    "emoji": ["🙂", "👩‍👩‍👧", "🇩🇪", "👍🏽", "❤️", "🤖🚀"],
    "odd": [
        "e\u0301",
        "\u200b",
        "\ufeff",
        "\t",
        "[MASK]",
        "[SEP]",
        "</s>",
        "<|endoftext|>",
        "\u00a0",
        "ﬁ",
        "Ⅷ",
        "１２３",
    ],
}
"""Among them a combining accent, a zero-width space and special tokens spelt out."""


def make_texts(count: int, longest: int, *, seed: int = 7) -> list[str]:
    """Make texts of 1 to `longest` words, mostly short ones."""
    random = np.random.default_rng(seed)
    scripts = list(WORDS)
    texts = []
    for _ in range(count):
        words = max(1, round(longest * float(random.random()) ** 4))
        mixed = random.choice(scripts, size=int(random.integers(1, 4)), replace=False)
        chosen = [str(random.choice(WORDS[str(random.choice(mixed))])) for _ in range(words)]
        texts.append(str(random.choice([" ", " ", " ", "", "\n"])).join(chosen))
    return texts
