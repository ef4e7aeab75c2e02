"""Patterns of subjects, whose tokens are joined by dots: `*` stands for one token, a final `>` for one or more."""


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject is one of a pattern's."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">" and len(given) >= len(wanted):
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    pairs = zip(wanted, given, strict=False)
    return len(wanted) == len(given) and all(token in ("*", each) for token, each in pairs)


def overlap(one: str, other: str) -> bool:
    """Whether a subject could be one of both patterns."""
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return one.count(".") == other.count(".")
