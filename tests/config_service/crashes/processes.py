"""Config services in processes of their own, which end or stand still between two steps of a write.

One process imports everything and forks the others, so that each takes milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sie_cluster.config_service.results import Answer
from sie_cluster.config_service.service import ConfigService
from sie_objectstore.store import BucketStore

from sie_core.contracts import InferenceError, ObjectStore
from sie_core.folder_store import FolderStore
from tests.config_service.conftest import log_on, name_of, service_on

WAIT_S = 60.0
STEPS = ("validated", "stored", "registered", "published")
Write = list[str]
"""A method of the service and its arguments; or `wait` and a file."""


def open_at(place: str) -> ObjectStore:
    """Open a bucket or a folder."""
    return BucketStore(place) if "://" in place else FolderStore(Path(place))


def until(ready: Callable[[], bool], what: str) -> None:
    """Wait until a call is true."""
    end = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(0.005)


@dataclass
class Nursery:
    """The process that forks the others."""

    process: subprocess.Popen[str]
    folder: Path

    def run(self, place: str, writes: list[Write], step: str, signal_number: int) -> tuple[int, Path]:
        """Start a service; after a step of its last write it sends itself a signal.

        Returns:
            Its process, and the file where it writes an answer a line.
        """
        told = self.folder / f"answers-{time.monotonic_ns()}"
        told.touch()
        pid = self._ask({"place": place, "writes": writes, "told": str(told), "at": [step, signal_number]})
        return int(pid), told

    def wait(self, pid: int) -> str:
        """Wait until a process ended or stands still, and say which."""
        return str(self._ask({"wait": pid}))

    def _ask(self, order: Mapping[str, Any]) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        stream: IO[str] | None = self.process.stdout
        assert stream is not None
        assert select.select([stream], [], [], WAIT_S)[0], "no answer"
        return json.loads(stream.readline())


@contextlib.contextmanager
def nursery(folder: Path, variables: Mapping[str, str]) -> Iterator[Nursery]:
    """Run one until the block ends; what it forked ends with it."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, **variables},
        cwd=Path(__file__).parents[3],
        start_new_session=True,
    ) as process:
        try:
            yield Nursery(process, folder)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def serve(order: dict[str, Any]) -> None:
    """Do the writes of an order, one after another."""
    at, signal_number = order["at"]
    writing = [-1]

    def step(name: str) -> None:
        if name == at and writing[0] == len(order["writes"]) - 1:
            writing[0] = -1  # a write may be tried again
            os.kill(os.getpid(), signal_number)

    service = service_on(log_on(open_at(order["place"])), step=step)
    service.read_on()
    with Path(order["told"]).open("a", encoding="utf-8") as told:
        for number, (method, *arguments) in enumerate(order["writes"]):
            writing[0] = number
            if method == "wait":
                until(Path(arguments[0]).exists, "nobody goes on")
                continue
            print(json.dumps(write(service, method, arguments)), file=told, flush=True)
    service.stop()


def write(service: ConfigService, method: str, arguments: list[str]) -> Any:
    """Do a write and return its answer, or the name of its error."""
    try:
        answer = call(service, [method, *arguments])
    except InferenceError as error:
        return name_of(error)
    return [answer.status, answer.body]


def call(service: ConfigService, write: Write) -> Answer:
    """Do a write; what begins with a brace is a body."""
    given = [each.encode() if each.startswith("{") else each for each in write[1:]]
    answer: Answer = getattr(service, write[0])(*given)
    return answer


def ending(status: int) -> str:
    """Say how a process ended, if it did."""
    if os.WIFSTOPPED(status):
        return "stopped"
    return "killed" if os.WIFSIGNALED(status) else f"ended with {os.waitstatus_to_exitcode(status)}"


def main() -> None:
    """Obey each line and answer by a line."""
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], os.WUNTRACED)
            print(json.dumps(ending(status)), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                serve(order)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(json.dumps(pid), flush=True)


if __name__ == "__main__":
    main()
