"""The broker inside the process keeps the rules of every queue transport."""

from collections.abc import Callable

import pytest

from sie_core.defaults.in_process_queue import sie_queue_transports
from sie_core.testing.queue_checks import QUEUE_CHECKS, Connect


@pytest.mark.parametrize("check", QUEUE_CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(check: Callable[[Connect], None]):
    (factory,) = sie_queue_transports()
    check(lambda: factory.create("memory://test", {}))
