"""Servers for the tests: `sie serve` as its users start it, in a process of its own."""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from filelock import FileLock

from sie_core.logs import ACCESS

os.environ.setdefault("SIE_RUNNER", "priority")  # which of two runners is faster on a tiny model is chance
with suppress(ImportError):  # where only tests that do not draw examples are run
    from hypothesis import HealthCheck, settings

    # An example may take longer than 200 ms on a busy machine, and so may the making of one.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
START_S = 90.0
"""How long a start may take: it may import torch on a busy machine."""
STOP_S = 30.0
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
FAKES = (
    *(f"sie-fake/{name}" for name in ("embedder", "dense", "reranker", "extractor", "media")),
    *(f"sie-fake/tokens{profile}" for profile in ("", ":muvera", ":smve")),
)


@dataclass
class Server:
    """A running `sie serve`."""

    process: subprocess.Popen[bytes]
    log_file: Path
    url: str = ""

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = STOP_S) -> int:
        """Wait for the end and return the exit status."""
        return self.process.wait(timeout_s)

    def wait_for_log(self, pattern: str, timeout_s: float = START_S) -> re.Match[str]:
        """Wait until a line of the log matches."""
        for _ in self._attempts(timeout_s):
            if match := re.search(pattern, self.log()):
                return match
        raise TimeoutError(f"no {pattern!r} in the log after {timeout_s} s:\n{self.log()}")

    def wait_until_ready(self, timeout_s: float = START_S) -> None:
        for _ in self._attempts(timeout_s):
            if self.probe("/readyz") == 200:
                return
        raise TimeoutError(f"not ready after {timeout_s} s:\n{self.log()}")

    def probe(self, path: str) -> int | None:
        """Return the status of a GET; None where nobody answers."""
        try:
            with urlopen(self.url + path, timeout=STOP_S) as reply:
                return int(reply.status)
        except HTTPError as error:
            return error.code
        except (URLError, OSError):
            return None

    def _attempts(self, timeout_s: float) -> Iterator[None]:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            yield
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log()}")
            time.sleep(0.02)


StartServer = Callable[..., Server]


@contextmanager
def run_server(
    folder: Path,
    env: Mapping[str, str | None] | None = None,
    args: Sequence[str] = (),
    *,
    ready: bool = True,
    prefix: Sequence[str] = (),
    command: Sequence[str] = ("serve",),
) -> Iterator[Server]:
    """Run `sie serve`, or another command, on a free port with nothing of the caller's environment but what `env` says.

    `prefix` is a command that runs the rest of its own line. A variable that is None is not set.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models").mkdir(exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    own = {
        "HF_HOME": str(folder / "hf"),
        "SIE_HF_FALLBACK": "false",
        "SIE_MODELS_DIR": str(folder / "models"),
        "SIE_RUNNER": "priority",
    }
    log_file = folder / "server.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*prefix, str(Path(sys.executable).with_name("sie")), *command, "--port", "0", *args],
            env={name: value for name, value in {**inherited, **own, **(env or {})}.items() if value is not None},
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = Server(process, log_file)
    try:
        server.url = server.wait_for_log(r"(?:listening|SIE serves) on (http://[^\s\"]+)").group(1)
        if ready:
            server.wait_until_ready()
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        print("---", log_file, *server.log().splitlines()[-40:], sep="\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build gliner's environment, as pip takes longer than a test may, and freeze the heap."""
    trained = any("trained" in getattr(item, "fixturenames", ()) for item in session.items)
    if (trained or "tests.gliner.library" in sys.modules) and session.items and not session.config.option.collectonly:
        from tests.gliner.library import fault

        fault()
    # The engine collects garbage when memory is short: it need not look at a million objects of imports and tests.
    gc.collect()
    gc.freeze()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers that end with the test: `start_server(env, args, ready=True)`."""
    from contextlib import ExitStack

    with ExitStack() as servers:
        count = 0

        def start(env: Mapping[str, str] | None = None, args: Sequence[str] = (), *, ready: bool = True) -> Server:
            nonlocal count
            count += 1
            return servers.enter_context(run_server(tmp_path / f"server{count}", env, args, ready=ready))

        yield start


@pytest.fixture(scope="session")
def minilm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with the embedded default loaded, from the installed package, without a network.

    It has the models of sie-fake loaded too: a client waits seconds before it tries again.
    """
    with run_server(tmp_path_factory.mktemp("minilm"), args=["--preload", ",".join([MINILM, *FAKES])]) as server:
        yield server.url


@pytest.fixture(scope="session")
def fake_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with the models of sie-fake loaded."""
    with run_server(tmp_path_factory.mktemp("fake"), args=["--preload", ",".join(FAKES)]) as server:
        yield server.url


@pytest.fixture(scope="session")
def front_ends_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two front ends and a process with the models of sie-fake loaded."""
    args = ["--frontends", "2", "--preload", ",".join(FAKES)]
    with run_server(tmp_path_factory.mktemp("front-ends"), args=args) as server:
        yield server


@contextmanager
def run_cluster(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run `sie cluster up` with its files in `folder / "cluster"`."""
    with run_server(folder, env, ["--folder", "cluster", *args], command=("cluster", "up")) as server:
        yield server


@pytest.fixture(scope="session")
def cluster_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster of two workers over a real broker, with the models of sie-fake loaded."""
    with run_cluster(tmp_path_factory.mktemp("cluster"), "--workers", "2", "--preload", ",".join(FAKES)) as server:
        yield server.url


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Give the folder that one of pytest's workers makes for all of them; tests must not write to it."""
    home = factory.getbasetemp()
    home = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home
    folder, done = home / f"shared-{name}", home / f"shared-{name}.done"
    with FileLock(home / f"shared-{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a GLiNER checkpoint that finds planted entities; tests must not write to it."""
    from tests.gliner.library import library

    return made_once(tmp_path_factory, "trained", lambda folder: library().train(folder)) / "trained"


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Undo what a command that ran in this process, or a fixture of a module, made of the log; tests read it too."""
    root, answered = logging.getLogger(), logging.getLogger(ACCESS)
    handlers, level = root.handlers[:], root.level
    answered.setLevel(logging.NOTSET)
    answered.filters.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    answered.setLevel(logging.NOTSET)
    answered.filters.clear()


@pytest.fixture
def heard_signals() -> Iterator[None]:
    """Have what the test starts hear the signals of a terminal, though the run may ignore them, as under nohup."""
    hear = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: lambda *_: None,
        signal.SIGQUIT: lambda *_: None,
    }
    # A handler is not inherited, as SIG_IGN is.
    before = {number: signal.signal(number, handler) for number, handler in hear.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def process_state() -> Iterator[None]:
    """Put back the variables that a command sets in its process."""
    environment = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(environment)
