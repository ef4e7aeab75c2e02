"""The broker inside the process keeps the rules of every queue transport."""

from collections.abc import Callable

import pytest
from sie_fake.broker.queue import in_process_transports
from sie_kit.checks.queue import QUEUE_CHECKS, Connect


@pytest.mark.parametrize("check", QUEUE_CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(check: Callable[[Connect], None]):
    (factory,) = in_process_transports()
    check(lambda: factory.create("memory://test", {}))
