"""A real S3 gateway for the tests: SeaweedFS in a process of its own, with one bucket.

One user may do anything; nobody may use the bucket too, for a protocol that is S3's but for its signatures.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

WEED = Path(sys.executable).with_name("weed")
KEY, SECRET = "test-key", "test-secret"
BUCKET = "weights"
START_S = 60.0
PORTS = ("master", "volume", "filer", "s3")


@contextmanager
def run_s3(folder: Path) -> Iterator[str]:
    """Run the gateway until the block ends; gives its URL once the bucket is there."""
    config = folder / "s3.json"
    user = {"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    nobody = {"name": "anonymous", "actions": [f"{may}:{BUCKET}" for may in ("Read", "Write", "List")]}
    config.write_text(json.dumps({"identities": [user, nobody]}))
    ports = _free_ports(2 * len(PORTS))
    command = [str(WEED), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    command += [f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-s3.autoCreateBucket", "-volume.max=4", "-master.volumeSizeLimitMB=64"]
    for place, name in enumerate(PORTS):
        command += [f"-{name}.port={ports[2 * place]}", f"-{name}.port.grpc={ports[2 * place + 1]}"]
    url = f"http://127.0.0.1:{ports[-2]}"
    log = folder / "weed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _make_bucket(url, process, log)
        yield url
    finally:
        process.kill()
        process.wait()
        for port in ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


def _make_bucket(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Store an object as soon as the gateway can; it makes the bucket."""
    store = S3Store(
        BUCKET,
        endpoint=url,
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            obstore.put(store, "ready", b"1")
        except BaseError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the S3 gateway did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
