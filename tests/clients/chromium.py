"""A real browser, driven over its own protocol by two pipes: a page as a person gets it, and what it asks for."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
LONGEST_S = 90.0


def browser_command(folder: Path, *options: str) -> list[str]:
    """Return the command of a browser without a window, with its profile in `folder`; skip the test without one."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    own = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}"]
    return [browser, *own, *options]


class Tab:
    """One page of a browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer, self._sent, self._session = b"", 0, ""
        self._loaded: set[str] = set()
        self.asked: list[str] = []
        """The addresses that the page loaded something from."""
        self.complaints: list[str] = []
        """What stands in its console, and exceptions."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def open(self, url: str) -> None:
        """Go to an address, and wait until the page is loaded."""
        loader = self.call("Page.navigate", url=url)["loaderId"]
        while loader not in self._loaded:
            self._message()

    def run(self, script: str) -> Any:
        """Run an expression in the page, wait for its promise, and return its value."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def use(self, scheme: str, width: int = 1200) -> None:
        """Prefer `light` or `dark`, in a window `width` pixels wide."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def picture(self) -> bytes:
        """Take a picture of what is seen, as PNG."""
        return b64decode(self.call("Page.captureScreenshot")["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command and return its answer."""
        self._sent += 1
        command = {"id": self._sent, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(command | ({"sessionId": self._session} if self._session else {})).encode())
        os.write(self._commands, b"\0")
        while (message := self._message()).get("id") != self._sent:
            pass
        assert "error" not in message, (method, message["error"])
        result: dict[str, Any] = message["result"]
        return result

    def _message(self) -> dict[str, Any]:
        """Wait for the next answer or event, and note what a test wants to know of events."""
        end = time.monotonic() + LONGEST_S
        while b"\0" not in self._buffer:
            if not select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser said nothing for {LONGEST_S} s")
            self._buffer += os.read(self._answers, 1 << 20)
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        told = message.get("params", {})
        match message.get("method"):
            case "Page.lifecycleEvent" if told["name"] == "load":
                self._loaded.add(told["loaderId"])
            case "Network.requestWillBeSent":
                self.asked.append(told["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told))
        return message


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """Run a browser with one tab."""
    command = browser_command(folder, "--remote-debugging-pipe")
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()
    numbered = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # those that a browser reads commands from and writes to
    process = subprocess.Popen(
        ["bash", "-c", numbered, "bash", *command],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(commands, answers)
    finally:
        process.terminate()
        process.wait(30)
        os.close(commands)
        os.close(answers)
