"""The first process of an image: starts the server, passes signals on, reaps what nobody else does.

Ends with the server's status; with 128 and the signal's number where a signal ended it.
"""

from __future__ import annotations

import os
import signal
import sys

PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(command: list[str]) -> int:
    """Run `command` to its end and return the status that says how it ended."""
    # Blocked until the handlers know whom to tell; the child gets the mask back before it becomes the server.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"{command[0]}: cannot be started: {error.strerror}\n")
            os._exit(127)
    for number in PASSED:
        signal.signal(number, lambda received, _: os.kill(child, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
