"""The page of the GPU bench."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.bench.gpu.loads import LENGTHS, MIXED
from tests.bench.gpu.measuring import ENGINE, LIBRARY, PADDED, Found

INTRODUCTION = """# On a GPU

Written by `make bench-gpu`; every figure of one run on one machine. Weights are random, so this is speed alone:
`tests/gpu` holds every kernel and runner to the reference. Tokens are those of the texts: padding counts for nothing.
"""
SHARE_BAR, ENGINE_BAR = 0.5, 3.0


def render(found: Sequence[Found], rate: float, hardware: dict[str, Any]) -> str:
    """Write the page; `rate` is the measured matrix-product limit in FLOP/s."""
    parts = [INTRODUCTION, "## The bars\n", _table(("figure", "wanted", "found", ""), _bars(found, rate))]
    for each in found:
        parts += [f"## {each.shape}\n", _speeds(each, rate), _alone(each)]
    return "\n".join([*parts, "## Conditions\n", *(f"- {line}" for line in _conditions(found, rate, hardware))]) + "\n"


def share(found: Found, runner: str, kind: str, rate: float) -> float:
    """Say which share of the matrix-product limit a runner's products reach."""
    return found.tokens_s[runner][kind] * found.flops_a_token / rate


def _bars(found: Sequence[Found], rate: float) -> Iterable[tuple[str, ...]]:
    for each in found:
        best = max(share(each, runner, "512", rate) for runner in each.runners)
        yield _bar(f"{each.shape}, 512 tokens: share of the matrix-product limit", SHARE_BAR, best)
        over = each.tokens_s[ENGINE][MIXED] / each.tokens_s[LIBRARY][MIXED]
        yield _bar(f"{each.shape}, mixed: whole engine over sentence-transformers", ENGINE_BAR, over)


def _bar(figure: str, wanted: float, value: float) -> tuple[str, ...]:
    return figure, f"≥ {wanted:g}", f"{value:.2f}", "✓" if value >= wanted else "✗"


def _speeds(found: Found, rate: float) -> str:
    kinds = [*LENGTHS, MIXED]
    names = [ENGINE, LIBRARY, *found.runners, PADDED]
    titles = {**{name: f"runner `{name}`" for name in found.runners}, ENGINE: f"{ENGINE} (`{found.served_by}`)"}
    rows = [(titles.get(name, name), *(f"{found.tokens_s[name][kind]:,.0f}" for kind in kinds)) for name in names]
    rows += [
        (f"`{name}`, share of the limit", *(f"{share(found, name, kind, rate):.2f}" for kind in kinds))
        for name in found.runners
    ]
    over = (found.tokens_s[ENGINE][kind] / found.tokens_s[LIBRARY][kind] for kind in kinds)
    rows.append(("engine over sentence-transformers", *(f"{value:.2f}" for value in over)))
    return _table(("tokens/s", *(f"{kind} tokens" if kind in LENGTHS else kind for kind in kinds)), rows)


def _alone(found: Found) -> str:
    rows = [(name, *(f"{times[kind]:.2f}" for kind in LENGTHS)) for name, times in found.alone_ms.items()]
    return _table(("ms for one text alone, its forward pass", *(f"{kind} tokens" for kind in LENGTHS)), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _conditions(found: Sequence[Found], rate: float, hardware: dict[str, Any]) -> Iterable[str]:
    yield f"{hardware['device']}; {hardware['cpu']}, {hardware['cpus']} CPUs; {hardware['system']}."
    yield f"Everything in {hardware['precision']}; the matrix-product limit measured is {rate / 1e12:,.1f} TFLOP/s."
    yield ", ".join(f"{name} {number}" for name, number in hardware["versions"].items() if number) + "."
    yield "sentence-transformers at the fastest of its batch sizes 32, 128, 512. Padded batches hold the same texts."
    for each in found:
        yield from (f"{each.shape}: {reason}." for reason in each.refused)
