"""A service killed between any two steps of a write: the next start completes the write or knows nothing of it."""

from __future__ import annotations

import signal
from typing import Any

import orjson
import pytest
from sie_bundle.bundles.registry import make_registry
from sie_cluster.config_service.service import ConfigService
from sie_cluster.messages.export import read_export
from sie_cluster.settings import ClusterSettings

from sie_core.catalog import build_catalog
from sie_core.plugins import PluginSet
from tests.config_service.conftest import Told, log_on, post, profile, service_on
from tests.config_service.crashes.processes import STEPS, Nursery, Write, call, open_at

COUNTS = STEPS[1:]


def writes_of(round_: int) -> dict[str, Write]:
    """A write of every kind, with a key of its own."""
    old, new = f"org/old{round_}", f"org/new{round_}"
    return {
        "a new model": ["create", post(new).decode(), f"new {round_}"],
        "a profile": ["create", post(old, {"big": profile("thorough")}).decode(), f"profile {round_}"],
        "a replaced model": ["put", old, post(old, license="x").decode(), f"put {round_}"],
        "a removed model": ["delete", old, f"delete {round_}"],
    }


def started(place: str, told: Told) -> ConfigService:
    """Start a service."""
    service = service_on(log_on(open_at(place)), publish=told)
    service.read_on()
    return service


def held(service: ConfigService) -> dict[str, Any]:
    told: dict[str, Any] = orjson.loads(service.export())
    del told["generated_at"]
    return told


def check_followers(service: ConfigService) -> None:
    """A follower makes the same of the export as the service did of its store."""
    export = read_export(service.export())
    catalog = build_catalog(ClusterSettings(), PluginSet(), export=export)
    follower = make_registry(
        catalog, export.bundles, export.placement(), {each.id: each.epoch for each in export.models if each.epoch}
    )
    registry = service.registry
    assert follower.config_hashes == registry.config_hashes
    assert (follower.catalog.config_epoch, follower.epochs) == (registry.catalog.config_epoch, registry.epochs)


@pytest.mark.parametrize(
    ("place", "kind"),
    [*(("folder", kind) for kind in writes_of(0)), ("s3", "a new model"), ("s3", "a removed model")],
    indirect=["place"],
)
def test_between_any_two_steps_a_kill_leaves_all_of_a_write_or_nothing(
    processes: Nursery, place: str, kind: str
) -> None:
    told = Told()
    service = started(place, told)
    for round_, _ in enumerate(STEPS):
        service.create(post(f"org/old{round_}"))
    before = held(service)
    service.stop()
    for round_, step in enumerate(STEPS):
        write = writes_of(round_)[kind]
        pid, answers = processes.run(place, [write], step, signal.SIGKILL)
        assert (processes.wait(pid), answers.read_text()) == ("killed", "")
        told.clear()
        service = started(place, told)
        counts = step in COUNTS
        assert (held(service)["epoch"], held(service) == before) == (before["epoch"] + counts, not counts)
        assert [each.registry.catalog.config_epoch for each in told] == [held(service)["epoch"]]
        check_followers(service)
        first = call(service, write)
        assert (first.status, first.body["epoch"]) == (201 if write[0] == "create" else 200, before["epoch"] + 1)
        assert not first.body.get("unchanged")
        assert call(service, write) == first
        before = held(service)
        assert before["epoch"] == first.body["epoch"]
        check_followers(service)
        service.stop()
