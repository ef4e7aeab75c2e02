"""Any sequence of POST, PUT, DELETE, crashes and restarts does what a small model of it says."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sie_cluster.config_service.results import Answer

from sie_core.contracts import InferenceError
from sie_core.folder_store import FolderStore
from tests.config_service.conftest import log_on, post, profile, refused, service_on

IDS = st.sampled_from(["org/a", "org/shipped"])
PROFILES = st.dictionaries(st.sampled_from(["default", "b", "c"]), st.sampled_from([1, 2]), min_size=1)
LICENSES = st.sampled_from([None, "x"])
KEYS = st.sampled_from([None, None, "one", "two"])
STEPS = ("validated", "stored", "registered", "published")
COUNTS = STEPS[1:]
IMAGE: dict[str, tuple[str | None, dict[str, int | None]]] = {"org/shipped": (None, {"default": None})}


class Crash(BaseException):
    """The process ends here."""


class Service(RuleBasedStateMachine):
    """A service, and beside it what it should hold: by model a license and the `max_batch_tokens` of profiles."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.crash_after = ""
        self.written: dict[str, tuple[str | None, dict[str, int | None]]] = {}
        self.epoch = 0
        self.answers: dict[str, tuple[Any, Answer]] = {}
        self.begin()

    def begin(self) -> None:
        store = FolderStore(Path(self.folder.name), durable=False)
        self.service = service_on(log_on(store), step=self.step)
        self.service.read_on()
        assert self.service.ready

    def step(self, name: str) -> None:
        if name == self.crash_after:
            raise Crash

    def teardown(self) -> None:
        self.service.stop()
        self.folder.cleanup()

    def held(self) -> dict[str, tuple[str | None, dict[str, int | None]]]:
        return {**IMAGE, **self.written}

    def do(self, method: str, arguments: tuple[Any, ...], key: str | None, crash: str, after: Any) -> Answer | None:
        """Do a write that makes `after` of what was written, or crash in it; None where it was not answered.

        A request that was answered before is answered so again, and one of another request's key is refused.
        """
        request = (method, arguments)
        known = self.answers.get(key or "")
        self.crash_after = crash if after is not None and known is None else ""
        try:
            answer: Answer = getattr(self.service, method)(*arguments, key)
        except Crash:
            self.crash_after = ""
            self.begin()
            if crash in COUNTS:
                self.count(after)
                if key:
                    again: Answer = getattr(self.service, method)(*arguments, key)
                    self.answers[key] = request, again
            return None
        except InferenceError as error:
            if error.code == "IDEMPOTENCY_MISMATCH" and known is not None and known[0] != request:
                return None
            raise
        finally:
            self.crash_after = ""
        if known is not None:
            assert (known[0], known[1]) == (request, answer)
            return None
        if after is not None:
            self.count(after)
            if key:
                self.answers[key] = request, answer
        assert answer.body["epoch"] == self.epoch
        return answer

    def count(self, after: dict[str, Any]) -> None:
        self.epoch += 1
        self.written = after

    @rule(id_=IDS, profiles=PROFILES, license_=LICENSES, key=KEYS, crash=st.sampled_from(["", *STEPS]))
    def create(self, id_: str, profiles: dict[str, int], license_: str | None, key: str | None, crash: str) -> None:
        body = self.body(id_, license_, profiles)
        existing = self.held().get(id_)
        before = (license_, {}) if existing is None else existing
        conflicts = [name for name, size in profiles.items() if name in before[1] and before[1][name] != size]
        created = [name for name in profiles if name not in before[1]]
        after = {**self.written, id_: (before[0], {**before[1], **{name: profiles[name] for name in created}})}
        refuses = conflicts or (license_ is not None and license_ != before[0])
        if refuses and key not in self.answers:
            error = refused(partial(self.service.create, body, key))
            assert error.details.get("conflicting_profiles", []) == conflicts
            return
        answer = self.do("create", (body,), key, crash, after if created else None)
        if answer is not None:
            assert answer.body["created_profiles"] == created
            assert answer.status == (201 if created else 200)

    @rule(id_=IDS, profiles=PROFILES, license_=LICENSES, key=KEYS, crash=st.sampled_from(["", *STEPS]))
    def put(self, id_: str, profiles: dict[str, int], license_: str | None, key: str | None, crash: str) -> None:
        changes = self.held().get(id_) != (license_, profiles)
        after = {**self.written, id_: (license_, profiles)} if changes else None
        answer = self.do("put", (id_, self.body(id_, license_, profiles)), key, crash, after)
        if answer is not None:
            assert (answer.body["replaced"], answer.body["unchanged"]) == (changes, not changes)

    @rule(id_=IDS, key=KEYS, crash=st.sampled_from(["", *STEPS]))
    def delete(self, id_: str, key: str | None, crash: str) -> None:
        deletes = id_ in self.written
        after = {each: config for each, config in self.written.items() if each != id_} if deletes else None
        answer = self.do("delete", (id_,), key, crash, after)
        if answer is not None:
            assert (answer.body["deleted"], answer.body["unchanged"]) == (deletes, not deletes)
            assert answer.body["fallback"] == ("filesystem" if id_ in IMAGE else None)

    @rule()
    def restart(self) -> None:
        self.service.stop()
        self.begin()

    @invariant()
    def it_exports_what_was_written(self) -> None:
        told = orjson.loads(self.service.export())
        assert told["epoch"] == self.epoch == self.service.registry.catalog.config_epoch
        held = {
            each["model_id"]: (
                each["model_config"].get("license"),
                {name: written.get("max_batch_tokens") for name, written in each["model_config"]["profiles"].items()},
            )
            for each in told["models"]
        }
        assert held == self.held()
        assert {id_ for id_, source in self.service.sources.items() if source == "api"} == set(self.written)

    @staticmethod
    def body(id_: str, license_: str | None, profiles: dict[str, int]) -> bytes:
        given = {name: profile(max_batch_tokens=size) for name, size in profiles.items()}
        pool = {"pool": "L4"} if id_ in IMAGE else {}
        return post(id_, given, **({"license": license_} if license_ else {}), **pool)


def test_any_sequence_does_what_the_model_says() -> None:
    run_state_machine_as_test(
        Service, settings=settings(max_examples=40, stateful_step_count=15, deadline=None, phases=[Phase.generate])
    )
