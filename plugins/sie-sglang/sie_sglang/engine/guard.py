"""A program that runs a command and ends all of it: when its standard input closes, or when the command ends.

The server holds the other end of the standard input, so even a killed server leaves no engine behind. Processes that
the command started and left are adopted (`PR_SET_CHILD_SUBREAPER`), and end too. If the guard is killed, the kernel
kills the command (`PR_SET_PDEATHSIG`).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LAST_WAIT_S = 10.0
"""Bounds the wait for killed processes, which the kernel may hold while it frees device memory."""


def main(command: list[str]) -> int:
    """Run `command`; return its exit status, or 0 if the server ended it."""
    control = ctypes.CDLL(None, use_errno=True).prctl
    control(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=lambda: control(PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    ended = os.pidfd_open(child.pid)
    try:
        # Nothing is ever written to the standard input: it becomes readable when the server closes it or dies.
        readable, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
        return child.wait() if ended in readable else 0
    finally:
        end_descendants()


def end_descendants() -> None:
    """Kill every process below this one, and wait for their end."""
    while below := psutil.Process().children(recursive=True):
        for process in below:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if psutil.wait_procs(below, timeout=LAST_WAIT_S)[1]:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
