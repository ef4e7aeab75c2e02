"""The Containerfile of an image: a stage that installs into a folder a layer, and the image that takes these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from sie_bundle.bundles.schema import variable_text
from sie_bundle.images.plan import LAYERS, OWN_PREFIX, Image
from sie_bundle.locks.lock import write_lock

USER = "10001:10001"
PYTHON = f"{OWN_PREFIX}/bin/python"
SHARE = f"{OWN_PREFIX}/share"
WEIGHTS = f"{OWN_PREFIX}/weights"
CACHE = "/cache"
SOCKETS = "/run/sie"
"""Where a worker and its sidecar in another container meet: a volume there belongs to who runs."""


def containerfile(image: Image) -> str:
    """Write the Containerfile; the same image, the same text."""
    layers = ["python", *(name for name in LAYERS if name != LAYERS[-1])]
    return "\n".join(
        [
            f"# {image.tag}, written by `sie bundle build`.",
            f"ARG BASE={image.base}",
            "",
            "# Installs what the context holds; nothing is fetched, and nothing of this stage but the folders is kept.",
            "FROM ${BASE} AS install",
            "WORKDIR /context",
            "COPY . /context",
            'RUN ["python3", "-m", "inside.install", "/context", "/layers"]',
            "",
            "FROM ${BASE}",
            "# What seldom changes comes first: a new version of the server is its last layer.",
            *(f"COPY --from=install /layers/{name}/ /" for name in layers if _filled(image, name)),
            f"COPY --from=install /layers/weights/ {WEIGHTS}/",
            *(f"COPY --from=install --chown={USER} /layers/cache/ {folder}/" for folder in (CACHE, SOCKETS)),
            f"COPY --from=install /layers/{LAYERS[-1]}/ /",
            _instruction("ENV", _variables(image)),
            _instruction("LABEL", _labels(image)),
            f"USER {USER}",
            f"WORKDIR {CACHE}",
            "EXPOSE 8080",
            "STOPSIGNAL SIGTERM",
            "HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 "
            f"CMD {json.dumps([PYTHON, '-I', '-S', f'{SHARE}/health.py'])}",
            f"ENTRYPOINT {json.dumps([PYTHON, '-I', '-S', f'{SHARE}/init.py', f'{OWN_PREFIX}/bin/sie'])}",
            f"CMD {json.dumps(image.program.split())}",
            "",
        ]
    )


def _instruction(word: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Write one instruction of many pairs; a `$` in a value stands for itself."""
    quoted = (f"{name}={json.dumps(value, ensure_ascii=False)}".replace("$", "\\$") for name, value in pairs)
    return f"{word} " + " \\\n    ".join(quoted)


def _filled(image: Image, layer: str) -> bool:
    return layer == "python" or any(layer in each["layers"] for each in image.plan()["environments"])


def _variables(image: Image) -> Iterator[tuple[str, str]]:
    yield "PATH", f"{OWN_PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # Whoever runs has no line in /etc/passwd, and the root is read-only: home is where may be written.
    yield "HOME", "/tmp"
    yield "USER", "sie"
    yield "PYTHONDONTWRITEBYTECODE", "1"
    yield "PYTHONUNBUFFERED", "1"
    yield "HF_HOME", CACHE
    yield "SIE_HTTP_HOST", "0.0.0.0"
    yield "SIE_LOCAL_CACHE", CACHE
    yield "SIE_BAKED_WEIGHTS", WEIGHTS
    if image.program == "serve":
        yield "SIE_BUNDLE", image.bundle.name
    for name, value in sorted(image.bundle.settings.items()):
        yield name, variable_text(value)


def _labels(image: Image) -> Iterator[tuple[str, str]]:
    prefix, (name, _, version) = "org.opencontainers.image", image.tag.partition(":")
    yield f"{prefix}.title", name
    yield f"{prefix}.version", version
    yield f"{prefix}.description", f"SIE, an inference engine: the bundle {image.bundle.name} for {image.platform}"
    yield f"{prefix}.licenses", "Apache-2.0"
    yield f"{prefix}.created", datetime.fromtimestamp(image.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    yield f"{prefix}.base.name", image.base.partition("@")[0]
    if "@" in image.base:
        yield f"{prefix}.base.digest", image.base.partition("@")[2]
    yield "sie.bundle", image.bundle.name
    yield "sie.platform", image.platform
    for lock in image.locks:
        kind = f".{lock.environment}" if lock.environment else ""
        yield f"sie.lock{kind}.sha256", hashlib.sha256(write_lock(lock).encode()).hexdigest()
