"""Microsoft's own emulator of its blob storage for the tests, a process of its own, where it is installed.

Elsewhere the tests that need it are a skip that says how.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every emulator, by its documentation."""
PACKAGE = "azurite@3.35.0"
HOME = Path(__file__).parents[2] / ".envs/azurite"
START_S = 60.0


@contextmanager
def run_azurite(folder: Path, container: str) -> Iterator[str]:
    """Run the emulator until the block ends; gives its URL once the container is there."""
    program = _installed()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(program), "--blobPort", str(port), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    log = folder / "azurite.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--skipApiVersionCheck"], stdout=output, stderr=subprocess.STDOUT, cwd=folder
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _make_container(url, container, process, log)
        yield url
    finally:
        process.kill()
        process.wait()


def _installed() -> Path:
    program = HOME / "node_modules/.bin/azurite-blob"
    if not program.exists():
        # 186 MB of packages for one provider: whoever wants them says so.
        pytest.skip(f"Microsoft's emulator is not installed: npm install --prefix .envs/azurite {PACKAGE}")
    return program


def _make_container(url: str, container: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Make the container as soon as the emulator answers; a store only ever uses one."""
    date = formatdate(usegmt=True)
    signed = f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:2021-08-06\n"
    signed += f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06", "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            answer = httpx.put(
                f"{url}/{ACCOUNT}/{container}", params={"restype": "container"}, headers=headers, timeout=60
            )
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        if answer.status_code == 201:
            return
        raise RuntimeError(f"no container could be made: {answer.text}")
    raise RuntimeError(f"the emulator did not start:\n{log.read_text(errors='replace')[-3000:]}")
