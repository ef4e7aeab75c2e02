"""When a request comes back that a full queue refused."""

import pytest

from sie_core.batching.sharing.admission import QueueAdmission
from sie_core.batching.sharing.demand import Demand
from sie_core.contracts import Batch, InferenceError
from tests.engine.device_time import Model


def test_the_time_until_there_is_room_is_that_of_all_that_is_too_much() -> None:
    """Also where that is many times what one request was measured with."""
    admission, model = QueueAdmission(1000), Model()
    model.policy.queued_units, model.policy.queued_cost = 1, 20_000
    for _ in range(10):
        admission.record(model, Batch((), "", 10, 0.01), 0.01, 0.01)
    with pytest.raises(InferenceError, match="SIE_MAX_QUEUED_COST=1000") as refused:
        admission.admit(model, [model], Demand((object(), 1.0), object(), None, 1000, 1000), 0.0, 0.0, 0.0)
    assert refused.value.retry_after_s == pytest.approx(20, abs=2)
