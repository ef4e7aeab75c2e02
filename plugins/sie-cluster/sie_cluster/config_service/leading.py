"""Keeps a lease in a thread of its own: renews it while it is held, and tries to take it while another has it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from sie_cluster.config_service.history.history import StoreDamaged
from sie_cluster.config_service.history.lease import Lease, LeaseDamaged, LeaseLost
from sie_core.contracts import ObjectStoreError

log = logging.getLogger(__name__)

LOOKS = 4
"""How often the lease is renewed, or another's looked at, in the time that it lasts."""


@contextlib.contextmanager
def renewed(lease: Lease, lasts_s: float) -> Iterator[None]:
    """Renew a lease that is held for as long as the block runs, which may take longer than it lasts."""
    done = threading.Event()

    def renew() -> None:
        with contextlib.suppress(ObjectStoreError, LeaseLost):
            while not done.wait(lasts_s / LOOKS):
                lease.renew()

    thread = threading.Thread(target=renew, name="sie-config-loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Leadership:
    """The thread that keeps a lease.

    Args:
        lease: The lease.
        lasts_s: How long it lasts.
        take: Tries to take it and reads what it guards.
        held: Called while it is held, after each renewal.
    """

    def __init__(self, lease: Lease, lasts_s: float, take: Callable[[], None], held: Callable[[], None]) -> None:
        self._lease, self._take, self._held = lease, take, held
        self._pause_s = lasts_s / LOOKS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sie-config-lease", daemon=True)
        self.problem: str | None = None
        """Why it is neither held nor another's, for the operator; None where it is."""
        self.damaged = False
        """Whether it was given up because the store is damaged."""

    def start(self) -> None:
        """Try once to take it, and begin; a store that cannot be reached is tried again and again.

        Raises:
            ObjectStoreError: The store refuses this process, or is not there.
            LeaseDamaged: The object is no lease.
            StoreDamaged: The store does not hold what the lease names.
        """
        try:
            self._take()
        except LeaseLost as error:
            self._tell(str(error))
        except ObjectStoreError as error:
            if error.failure != "UNAVAILABLE":
                told = f"SIE_CONFIG_STORE_DIR: {error}. Name a folder or a bucket that this process may read and write."
                raise ObjectStoreError(error.failure, told) from error
            self._tell(str(error))
        self._thread.start()

    def stop(self) -> None:
        """End, and wait until it has."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Do what is due: renew it, or try to take it."""
        try:
            if self._lease.held:
                self._lease.renew()
            else:
                self._take()
            if self._lease.held:
                self._held()
        except (StoreDamaged, LeaseDamaged) as error:
            self.problem, self.damaged = str(error), True
            log.critical("the config service cannot go on: %s", error)
        except (ObjectStoreError, LeaseLost) as error:
            self._tell(str(error))
        except Exception:
            log.exception("the lease of the config store was not kept")
            self._tell("the log says why")
        else:
            self._tell(None)

    def _run(self) -> None:
        while not self.damaged and not self._stopping.wait(self._pause_s):
            self.look()

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            log.error("the config service does not lead: %s", problem)
        self.problem = problem
