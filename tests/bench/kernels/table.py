"""The table of the kernels, from the results alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from tests.bench.kernels.measuring import KERNELS
from tests.bench.page.results import Record, choose, ratio_of

HEAD = ("model", "setting", "precision", "runner", "tokens/s", "the kernels over it")


def rows(found: Sequence[Record]) -> Iterator[tuple[object, ...]]:
    """Write a row for each runner, the kernels' own ratio left empty; one without kernels beside it has none."""
    for each in found:
        place = {"model": each["model"], "setting": each["setting"]}
        kernels = choose(list(found), runner=KERNELS, **place)
        over: Any = "–"
        if kernels and each["runner"] != KERNELS:
            over = ratio_of(kernels[0]["tokens_s"], each["tokens_s"])
        yield *place.values(), each["precision"], each["runner"], f"{median(each['tokens_s']):,.0f}", over
