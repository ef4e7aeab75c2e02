"""Idempotency keys: the same request gets the same answer, across restarts, for an hour."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.store import state
from sie_cluster.config_service.store.state import KEPT_S

from tests.config_service.conftest import Start, Told, error_of, post, refused


def epoch(service: ConfigService) -> int | None:
    return service.registry.catalog.config_epoch


def test_a_repeated_request_gets_the_first_answer_whatever_happened_since(start: Start) -> None:
    told = Told()
    service = start(publish=told)
    first = service.create(post("org/a"), "create")
    replaced = service.put("org/a", post("org/a", license="x"), "put")
    deleted = service.delete("org/a", "delete")
    assert [each.body["epoch"] for each in (first, replaced, deleted)] == [1, 2, 3]
    for _ in range(2):
        assert service.create(post("org/a"), "create") == first
        assert service.put("org/a", post("org/a", license="x"), "put") == replaced
        assert service.delete("org/a", "delete") == deleted
        assert (epoch(service), "org/a" in service.sources) == (3, False)
        service.stop()
        service = start(publish=told)
    assert [each.registry.catalog.config_epoch for each in told] == [1, 2, 3, 3, 3]  # a start tells the last one again


def test_a_request_that_changed_nothing_keeps_no_key(service: ConfigService) -> None:
    assert service.delete("org/a", "key").body["unchanged"]
    service.create(post("org/a"))
    assert service.delete("org/a", "key").body["deleted"]


def test_a_key_stands_for_one_method_path_and_body(service: ConfigService) -> None:
    service.put("org/a", post("org/a"), "key")
    for other in (
        lambda: service.put("org/a", post("org/a", license="x"), "key"),
        lambda: service.put("org/b", post("org/a"), "key"),
        lambda: service.create(post("org/a"), "key"),
        lambda: service.delete("org/a", "key"),
    ):
        error = refused(other)
        assert (error.code, error.spec.status) == ("IDEMPOTENCY_MISMATCH", 422)
    assert epoch(service) == 1


def test_a_refused_request_leaves_its_key_free(service: ConfigService) -> None:
    assert error_of(lambda: service.create(post("org/a", colour="red"), "key")) == "validation_error"
    assert service.create(post("org/a"), "key").status == 201


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "é", "\0"])
def test_what_can_be_no_key_is_refused(service: ConfigService, key: str) -> None:
    assert error_of(lambda: service.create(post("org/a"), key)) == "invalid_idempotency_key"
    assert error_of(lambda: service.delete("org/a", key)) == "invalid_idempotency_key"


def test_a_key_is_kept_for_an_hour(start: Start) -> None:
    now = [1e9]
    service = start(now=lambda: now[0])
    first = service.create(post("org/a"), "key")
    service.delete("org/a")
    now[0] += KEPT_S - 1
    assert service.create(post("org/a"), "key") == first
    now[0] += 2
    assert service.create(post("org/a"), "key").body["epoch"] == 3
    now[0] += KEPT_S + 1
    service.delete("org/a", "another")
    assert [each.key for each in service.state.writes["org/a"].answers] == ["another"]


def test_the_newest_keys_are_kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_KEPT", 3)
    service = start()
    for number in range(5):
        service.put("org/a", post("org/a", license=str(number)), f"key {number}")
    service.stop()
    service = start()
    for number in (4, 3, 2):
        assert service.put("org/a", post("org/a", license=str(number)), f"key {number}").body["epoch"] == number + 1
    assert service.put("org/a", post("org/a", license="1"), "key 1").body["epoch"] == 6


def test_of_many_at_once_one_is_done_and_all_get_its_answer(start: Start) -> None:
    begin = threading.Barrier(16)
    service = start()

    def send() -> object:
        begin.wait(30)
        return service.create(post("org/a"), "key")

    with ThreadPoolExecutor(16) as threads:
        answers = [each.result(60) for each in [threads.submit(send) for _ in range(16)]]
    assert answers == 16 * [answers[0]]
    assert epoch(service) == 1
