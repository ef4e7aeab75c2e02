"""A real S3 gateway for the tests: SeaweedFS in processes of its own, with one bucket.

One user may do anything; nobody may use the bucket too, for a protocol that is S3's but for its signatures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from sie_core.serving.listening import reserve

WEED = Path(sys.executable).with_name("weed")
KEY, SECRET = "test-key", "test-secret"
BUCKET = "weights"
START_S = 60.0


@contextmanager
def run_s3(folder: Path) -> Iterator[str]:
    """Run the gateway until the block ends; gives its URL once the bucket is there."""
    with ExitStack() as held:
        ports = [held.enter_context(reserve("127.0.0.1", 0))[1] for _ in range(8)]
        yield held.enter_context(_run_s3(folder, ports))


@contextmanager
def _run_s3(folder: Path, ports: Sequence[int]) -> Iterator[str]:
    master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = ports
    config = folder / "s3.json"
    user = {"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    nobody = {"name": "anonymous", "actions": [f"{may}:{BUCKET}" for may in ("Read", "Write", "List")]}
    config.write_text(json.dumps({"identities": [user, nobody]}))
    serve = ["server", "-master=false", f"-master.peers=127.0.0.1:{master}.{master_grpc}", f"-dir={folder}", "-s3"]
    serve += [f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket"]
    serve += [f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.max=4"]
    serve += [f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}"]
    lead = ["master", f"-mdir={folder}", f"-port={master}", f"-port.grpc={master_grpc}", "-volumeSizeLimitMB=64"]
    try:
        # One process for all may ask its master before that leads, and asks again after five seconds.
        with _weed(folder, lead) as leading:
            _wait(lambda: _leads(master), leading, folder)
            with _weed(folder, serve) as serving:
                url = f"http://127.0.0.1:{s3}"
                _wait(lambda: _makes_bucket(url), serving, folder)
                yield url
    finally:
        for port in ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


@contextmanager
def _weed(folder: Path, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "weed.log").open("ab") as output:
        process = subprocess.Popen(
            [str(WEED), *arguments, "-ip=127.0.0.1", "-ip.bind=127.0.0.1"],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return
        time.sleep(0.05)
    log = (folder / "weed.log").read_text(errors="replace")
    raise RuntimeError(f"the S3 gateway did not start:\n{log[-3000:]}")


def _leads(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/cluster/status", timeout=60).json().get("IsLeader", False) is True
    except httpx.TransportError:
        return False


def _makes_bucket(url: str) -> bool:
    """Store an object if the gateway can; it makes the bucket."""
    store = S3Store(
        BUCKET,
        endpoint=url,
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    try:
        obstore.put(store, "ready", b"1")
    except BaseError:
        return False
    return True
