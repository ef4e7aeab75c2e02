"""A process of its own that writes into a store, as its standard input says, and may stop in the middle of a write."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sie_objectstore.store import BucketStore

from sie_core.contracts import ObjectStore, ObjectStoreError
from sie_core.folder_store import FolderStore

WAIT_S = 60.0
KEY = "one"


def open_at(place: str) -> ObjectStore:
    """Open a bucket or a folder."""
    return BucketStore(place) if "://" in place else FolderStore(Path(place))


@dataclass
class Contender:
    """Such a process, seen from the test."""

    process: subprocess.Popen[str]

    def ask(self, *words: str | int | float) -> None:
        """Send an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer to it."""
        stream: IO[str] | None = self.process.stdout
        assert stream is not None
        assert select.select([stream], [], [], WAIT_S)[0], "no answer"
        return json.loads(stream.readline())

    def call(self, *words: str | int | float) -> Any:
        """Send an order and wait for its answer."""
        self.ask(*words)
        return self.answer()

    def until_stopped(self) -> None:
        """Wait until it stands still."""
        end = time.monotonic() + WAIT_S
        while os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG) is None:
            assert time.monotonic() < end, "it did not stop"
            time.sleep(0.005)

    def signal(self, number: signal.Signals) -> None:
        """Stop it, or have it go on."""
        self.process.send_signal(number)


@contextlib.contextmanager
def contender(place: str, variables: Mapping[str, str]) -> Iterator[Contender]:
    """Run one until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, **variables},
        cwd=Path(__file__).parents[3],
    ) as process:
        try:
            yield Contender(process)
        finally:
            process.kill()


def _stop_before(owner: Any, method: str) -> None:
    """Have this process stop itself when it calls a method for the next time."""
    asked = getattr(owner, method)

    @functools.wraps(asked)
    def stop(*args: Any, **options: Any) -> Any:
        setattr(owner, method, asked)
        os.kill(os.getpid(), signal.SIGSTOP)
        return asked(*args, **options)

    setattr(owner, method, stop)


def _obey(store: ObjectStore, seen: list[str], order: str, words: list[Any]) -> Any:
    match order, words:
        case "create", [key, content]:
            return store.create(key, content.encode())
        case "see", []:
            seen[:] = [store.read_version(KEY).version]
        case "write", [content]:
            seen[:] = [store.replace(KEY, content.encode(), seen[0])]
            return content
        case "count", [key, times]:
            done = 0
            while done < times:
                found = store.read_version(key)
                with contextlib.suppress(ObjectStoreError):
                    store.replace(key, str(int(found.data) + 1).encode(), found.version)
                    done += 1
            return done
        case "stop before", ["the request"]:
            _stop_before(store, "replace")
        case "stop before", [call]:
            _stop_before(Path, call)
    return None


def main(place: str) -> None:
    """Do what each line says and answer by a line."""
    store = open_at(place)
    seen: list[str] = []
    for line in sys.stdin:
        order, *words = json.loads(line)
        try:
            answer = _obey(store, seen, order, words)
        except ObjectStoreError as error:
            answer = error.failure
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
