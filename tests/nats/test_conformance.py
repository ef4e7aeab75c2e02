"""JetStream keeps the rules of every queue transport."""

from collections.abc import Callable

import pytest
from sie_kit.checks.queue import QUEUE_CHECKS, Connect

from tests.nats.conftest import Broker, transport


@pytest.mark.parametrize("check", QUEUE_CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(check: Callable[[Connect], None], broker: Broker):
    check(lambda: transport(broker.url, storage="memory"))
