"""Throughput against clients as an SVG picture, drawn by hand."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tests.bench.page.results import Results, choose, middle
from tests.bench.processes.servers import SERVERS
from tests.bench.workload.workloads import CLIENTS, GROUPS

WIDTH, HEIGHT = 380, 300
LEFT, TOP, BOTTOM, RIGHT = 56, 44, 44, 48
COLOURS = {"sie": "#0b6e4f", "infinity": "#c8553d", "infinity-bt": "#e09f3e", "infinity-onnx": "#6c7a89"}
TITLES = {1: "one text a request", 32: "32 texts a request"}
STEPS = (1, 2, 5)


def draw(results: Results, kind: str = "mixed") -> str:
    """Draw a panel for each number of texts a request."""
    panels = "".join(_panel(results, kind, group, place * WIDTH) for place, group in enumerate(GROUPS))
    width = WIDTH * len(GROUPS)
    legend = "".join(_legend(results))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + 28}" width="{width}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#333" role="img" '
        f'aria-label="Texts a second against clients, {kind} lengths">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{panels}{legend}</svg>\n'
    )


def _panel(results: Results, kind: str, group: int, left: int) -> str:
    series = {name: _series(results, name, kind, group) for name in SERVERS}
    top = max((rate for points in series.values() for _, rate in points), default=1.0) * 1.05
    lines = "".join(_line(name, points, left, top) for name, points in series.items() if points)
    return f"{_frame(group, kind, left, top)}{lines}"


def _series(results: Results, server: str, kind: str, group: int) -> list[tuple[int, float]]:
    points = []
    for clients in CLIENTS:
        rate = middle(choose(results.grid, server=server, kind=kind, group=group, clients=clients), "texts_s")
        if rate is not None:
            points.append((clients, rate))
    return points


def _x(clients: int, left: int) -> float:
    """Space the numbers of clients evenly: what matters is whether the line falls."""
    return left + LEFT + CLIENTS.index(clients) * (WIDTH - LEFT - RIGHT) / (len(CLIENTS) - 1)


def _y(rate: float, top: float) -> float:
    return HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM)


def _frame(group: int, kind: str, left: int, top: float) -> str:
    parts = [f'<text x="{left + LEFT}" y="20" font-weight="600">{TITLES[group]}, {kind} lengths: texts/s</text>\n']
    for mark in ticks(top):
        y = _y(mark, top)
        parts.append(
            f'<path d="M{left + LEFT} {y:.1f}H{left + WIDTH - RIGHT}" stroke="#e3e3e3"/>'
            f'<text x="{left + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>\n'
        )
    for clients in CLIENTS:
        x = _x(clients, left)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{clients}</text>\n')
    middle_x = left + (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle_x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">clients</text>\n')
    return "".join(parts)


def ticks(top: float, most: int = 6) -> list[float]:
    """Choose round marks from 0 up to `top`, at most `most` of them above 0."""
    size = 10.0**-3
    while True:
        for step in STEPS:
            if top / (size * step) <= most:
                return [round(size * step * place, 9) for place in range(int(top / (size * step)) + 1)]
        size *= 10


def _line(name: str, points: list[tuple[int, float]], left: int, top: float) -> str:
    places = [(_x(clients, left), _y(rate, top)) for clients, rate in points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places)
    last_x, last_y = places[-1]
    value = f'<text x="{last_x + 8:.1f}" y="{last_y + 4:.1f}" stroke="none">{points[-1][1]:,.0f}</text>'
    colour = COLOURS[name]
    return f'<g fill="{colour}" stroke="{colour}"><path d="{path}" fill="none" stroke-width="2"/>{dots}{value}</g>\n'


def _legend(results: Results) -> Iterator[str]:
    x = LEFT
    for name, spec in SERVERS.items():
        if choose(results.grid, server=name):
            yield f'<circle cx="{x}" cy="{HEIGHT + 12}" r="5" fill="{COLOURS[name]}"/>'
            yield f'<text x="{x + 10}" y="{HEIGHT + 16}">{escape(spec.title)}</text>\n'
            x += 30 + 7 * len(spec.title)
