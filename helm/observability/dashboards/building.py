"""Makes dashboards of Grafana: a row of panels by a list, a panel by its title, its unit, and its queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 24, 8
"""Columns of a dashboard, and the rows of a panel."""
SOURCE = {"type": "prometheus", "uid": "${source}"}
OF = 'job=~"$job", instance=~"$instance"'
"""What every query asks for."""
MODEL = f'{OF}, model=~"$model"'
LANE = f'{OF}, machine_profile=~"$machine_profile", bundle=~"$bundle"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True)
class Panel:
    """One panel; `queries` are pairs of an expression and the legend of its series."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    about: str = ""

    def as_json(self, number: int, x: int, y: int, width: int) -> dict[str, Any]:
        """Write it at a place."""
        targets = [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend, "datasource": SOURCE}
            for place, (query, legend) in enumerate(self.queries)
        ]
        return {
            "id": number,
            "type": "timeseries",
            "title": self.title,
            "description": self.about,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0}, "overrides": []},
            "targets": targets,
        }


def quantile(share: float, metric: str, by: str, selector: str) -> str:
    """Ask for a quantile of a histogram, for each value of the labels `by`."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{selector}}}{RATE})))"


def quantiles(metric: str, selector: str) -> list[tuple[str, str]]:
    """Ask for the median, p95 and p99 of a histogram."""
    return [(quantile(share, metric, "", selector), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99)]


def dashboard(uid: str, title: str, rows: Sequence[Sequence[Panel]], variables: Sequence[str]) -> dict[str, Any]:
    """Make a dashboard with variables for the source, the job, the instance and `variables`."""
    panels = []
    for line, row in enumerate(rows):
        width = WIDTH // len(row)
        panels += [
            panel.as_json(len(panels) + place + 1, place * width, line * HEIGHT, width)
            for place, panel in enumerate(row)
        ]
    asked = [
        ("job", "up", ""),
        ("instance", "up", '{job=~"$job"}'),
        *((name, of, "") for name, of in _OF.items() if name in variables),
    ]
    return {
        "uid": uid,
        "title": title,
        "tags": ["sie"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_SOURCE, *(_variable(*each) for each in asked)]},
        "panels": panels,
    }


_OF = {
    "model": "sie_requests_total",
    "machine_profile": "sie_gateway_pending_demand",
    "bundle": "sie_gateway_pending_demand",
}
_SOURCE = {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str, selector: str) -> dict[str, Any]:
    query = f"label_values({metric}{selector}, {name})"
    return {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def write(name: str, made: dict[str, Any]) -> None:
    """Write a dashboard beside this file, unless it is there as it is."""
    file, text = Path(__file__).with_name(f"{name}.json"), json.dumps(made, indent=1, sort_keys=True) + "\n"
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
