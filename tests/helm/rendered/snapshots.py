"""What the shipped values files render, for a reviewer to read by diff: `python -m tests.helm.rendered.snapshots`
writes the files of `snapshots/` anew.
"""

from __future__ import annotations

from pathlib import Path

from tests.helm.engine import CHART, Helm, helm_running

FOLDER = Path(__file__).with_name("snapshots")
FILES = {file.stem.removeprefix("values-"): file for file in sorted(CHART.glob("values-*.yaml"))}
SECRET = {"secrets": {"existingSecret": "mine"}}
"""Otherwise each rendering has other passwords."""


def snapshot(helm: Helm, file: Path) -> str:
    """Render the chart with a values file: every manifest, below its template's path."""
    texts = helm.texts(SECRET, files=[file])
    kept = {path: "\n".join(filter(str.strip, text.splitlines())) for path, text in sorted(texts.items())}
    return "".join(f"# {path}\n{text}\n" for path, text in kept.items() if text)


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    with helm_running() as helm:
        for name, file in FILES.items():
            (FOLDER / f"{name}.txt").write_text(snapshot(helm, file), encoding="utf-8")


if __name__ == "__main__":
    main()
