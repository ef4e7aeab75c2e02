"""What POST, PUT and DELETE change, answer, and refuse."""

from __future__ import annotations

import orjson
import pytest
from sie_cluster.config_service import held
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.writing import plans

from sie_core.folder_store import FolderStore
from tests.config_service.conftest import SHIPPED, Start, Told, base, error_of, name_of, post, profile, refused

NUMBER = post("org/a", {"default": profile(adapter_options={"runtime": {"n": 1234}})})
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 10)) for name in range(98, 105)
)


def exported(service: ConfigService) -> dict[str, dict[str, object]]:
    return {each["model_id"]: each for each in orjson.loads(service.export())["models"]}


def test_a_new_model_is_answered_told_and_exported(start: Start) -> None:
    told = Told()
    service = start(publish=told)
    body = b"# mine\nsie_id: org/a\nhf_id: org/a\nprofiles: {default: {adapter_path: quick}, b: {extends: default}}\n"
    answer = service.create(body)
    assert answer.status == 201
    assert answer.body == {
        "model_id": "org/a",
        "created_profiles": ["default", "b"],
        "existing_profiles_skipped": [],
        "routable_bundles_by_profile": {"default": ["fast", "slow"], "b": ["fast", "slow"]},
        "epoch": 1,
        "warnings": [],
        "router_id": "one",
    }
    (change,) = told
    assert (change.model_id, change.source) == ("org/a", "api")
    assert change.registry.catalog.config_epoch == 1
    assert (change.profiles_added, change.affected_bundles) == (("default", "b"), ("fast", "slow"))
    assert change.registry is service.registry
    assert service.registry.resolve("org/a:b").bundle == "fast"
    export = exported(service)["org/a"]
    assert (export["raw_yaml"], export["source"], export["epoch"]) == (body.decode(), "api", 1)
    assert (exported(service)["org/shipped"]["source"], exported(service)["org/shipped"]["epoch"]) == ("filesystem", 0)


def test_profiles_are_added_and_what_is_there_stays(start: Start) -> None:
    told = Told()
    service = start(publish=told)
    service.create(post("org/a", tasks={"encode": {"dense": {"dim": 8}}}))
    answer = service.create(
        b"{sie_id: org/a, profiles: {default: {adapter_path: quick}, big: {adapter_path: thorough}}}"
    )
    assert (answer.status, answer.body["created_profiles"], answer.body["existing_profiles_skipped"]) == (
        201,
        ["big"],
        ["default"],
    )
    assert answer.body["routable_bundles_by_profile"] == {"big": ["slow"]}
    config = service.registry.catalog.configs["org/a"]
    assert (set(config.profiles), config.tasks) == ({"default", "big"}, {"encode": {"dense": {"dim": 8}}})
    assert (told[-1].profiles_added, told[-1].affected_bundles) == (("big",), ("fast", "slow"))
    again = service.create(post("org/a", {"big": profile("thorough")}))
    assert (again.status, again.body["existing_profiles_skipped"], again.body["epoch"]) == (200, ["big"], 2)
    assert len(told) == 2


def test_other_content_of_what_is_there_is_a_conflict_that_names_it(service: ConfigService) -> None:
    service.create(post("org/a"))
    error = refused(
        lambda: service.create(post("org/a", {"default": profile("thorough"), "b": profile()}, license="x"))
    )
    assert (error.code, error.spec.status) == ("CONTENT_CONFLICT", 409)
    assert error.details == {
        "conflicting_fields": ["license"],
        "conflicting_profiles": ["default"],
    }
    assert service.registry.catalog.config_epoch == 1


def test_a_field_that_states_its_default_is_no_conflict(service: ConfigService) -> None:
    service.create(post("org/a"))
    assert service.create(post("org/a", inputs={"text": True}, pool="default", loras={})).status == 200


def test_a_profile_is_added_to_a_model_of_the_base(service: ConfigService) -> None:
    answer = service.create(post("org/shipped", {"big": profile("thorough")}))
    assert answer.status == 201
    assert service.sources == {"org/shipped": "api"}
    assert set(service.registry.catalog.configs["org/shipped"].profiles) == {"default", "big"}
    assert service.registry.resolve("org/shipped:big").pool == "l4"


def test_a_put_replaces_all_of_a_config(start: Start) -> None:
    told = Told()
    service = start(publish=told)
    service.create(post("org/a", license="x"))
    answer = service.put("org/a", b"{hf_id: org/b, profiles: {big: {adapter_path: thorough}}}")
    assert answer.status == 200
    assert answer.body == {
        "model_id": "org/a",
        "replaced": True,
        "unchanged": False,
        "affected_bundles": ["fast", "slow"],
        "epoch": 2,
        "warnings": [],
        "router_id": "one",
    }
    config = service.registry.catalog.configs["org/a"]
    assert (config.hf_id, config.license, list(config.profiles)) == ("org/b", None, ["big"])
    assert told[-1].profiles_added == ("big",)
    same = service.put("org/a", b"hf_id: org/b\nsie_id: org/a\nprofiles: {big: {adapter_path: thorough}}\n")
    assert (same.body["replaced"], same.body["unchanged"], same.body["epoch"], len(told)) == (False, True, 2, 2)
    assert error_of(lambda: service.put("org/a", post("org/b"))) == "model_id_mismatch"


def test_a_delete_removes_what_was_written_and_the_base_counts_again(start: Start) -> None:
    told = Told()
    service = start(publish=told)
    service.create(post("org/a"))
    gone = service.delete("org/a")
    assert gone.status == 200
    assert gone.body == {
        "model_id": "org/a",
        "deleted": True,
        "unchanged": False,
        "fallback": None,
        "affected_bundles": ["fast", "slow"],
        "distribution": "epoch_export",
        "epoch": 2,
        "warnings": [],
        "router_id": "one",
    }
    assert (told[-1].source, told[-1].affected_bundles) == ("filesystem", ("fast", "slow"))
    again = service.delete("org/a")
    assert (again.body["deleted"], again.body["unchanged"], again.body["epoch"], len(told)) == (False, True, 2, 2)
    service.put("org/shipped", post("org/shipped", {"default": profile("thorough")}))
    back = service.delete("org/shipped")
    assert (back.body["fallback"], back.body["affected_bundles"]) == ("filesystem", ["fast", "slow"])
    assert service.sources == {"org/shipped": "filesystem"}
    assert exported(service)["org/shipped"]["epoch"] == 4
    assert service.registry.resolve("org/shipped").bundle == "fast"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "parse_error"),
        (b"[]", "parse_error"),
        (b"a: [", "parse_error"),
        (b"\xff", "parse_error"),
        (b"[" * 900, "parse_error"),
        (b"- " * 900, "parse_error"),
        (b"a: " + b"[" * 300 + b"]" * 300, "parse_error"),
        (b"a: &a [1,1]\nb: &b [*a,*a]\nc: [*b, 2020-01-01]", "parse_error"),
        (BOMB, "parse_error"),
        (b"a: &a " + b"x" * 500_000 + b"\nb: [" + b"*a," * 1000 + b"]", "parse_error"),
        (b'sie_id: "\\ud800"', "parse_error"),
        (NUMBER.replace(b"1234", b"0x" + b"f" * 5000), "parse_error"),
        (post("../etc"), "invalid_model_id"),
        (post("a/../../b"), "invalid_model_id"),
        (post("a\\b"), "invalid_model_id"),
        (post("status"), "invalid_model_id"),
        (post("org/a/status"), "invalid_model_id"),
        (post("org/a:default"), "invalid_model_id"),
        (post("a" * 300), "invalid_model_id"),
        (b"{profiles: {default: {adapter_path: quick}}}", "validation_error"),
        (b"{sie_id: 7, profiles: {default: {adapter_path: quick}}}", "validation_error"),
        (b"{sie_id: org/a, hf_id: org/a}", "validation_error"),
        (post("org/a", {}), "validation_error"),
        (post("org/a", {"b": {"extends": "default"}}), "validation_error"),
        (post("org/a", {"a b": profile()}), "validation_error"),
        (post("org/a", {"default": profile("unheard-of")}), "validation_error"),
        (post("org/a", {"default": profile("pkg.mod:Class")}), "validation_error"),
        (post("org/a", colour="red"), "validation_error"),
        (post("org/a", max_sequence_length="9"), "validation_error"),
        (post("org/a", weights_path="./beside"), "validation_error"),
        (post("org/a", trust_remote_code=True), "validation_error"),
        (post("org/a", unserved="because"), "validation_error"),
        (post("org/a", pool="_default"), "validation_error"),
        (NUMBER.replace(b"1234", b" .nan"), "validation_error"),
        (post("org/shipped", {"b": profile()}, pool="h100"), "validation_error"),
    ],
    ids=range(35),
)  # fmt: skip
def test_a_wrong_body_is_refused_and_nothing_is_written(
    service: ConfigService, store: FolderStore, body: bytes, error: str
) -> None:
    before = {each.key for each in store.list("")}
    raised = refused(lambda: service.create(body))
    assert name_of(raised) == error, raised
    assert len(str(raised)) < 3000
    if error == "validation_error":
        assert all(each["message"] for each in raised.details["details"])
    assert {each.key for each in store.list("")} == before
    assert service.registry.catalog.config_epoch == 0


@pytest.mark.parametrize("model_id", ["", "..", "a/../b", "a\\b", "status", "org/a/status", "org/a:default", "\ud800"])
def test_no_other_write_takes_an_id_that_is_none(service: ConfigService, model_id: str) -> None:
    assert error_of(lambda: service.put(model_id, post("org/a"))) == "invalid_model_id"
    assert error_of(lambda: service.delete(model_id)) == "invalid_model_id"


def test_ids_that_differ_in_slashes_and_underscores_are_two_models(service: ConfigService) -> None:
    service.create(post("org/a"))
    service.create(post("org__a", license="other"))
    configs = service.registry.catalog.configs
    assert (configs["org/a"].license, configs["org__a"].license) == (None, "other")


def test_a_name_that_another_model_has_is_a_conflict(service: ConfigService) -> None:
    service.create(post("org/a:big"))
    error = refused(lambda: service.create(post("org/a", {"default": profile(), "big": profile()})))
    assert error.details == {"conflicting_profiles": ["big"]}


def test_a_refusal_of_every_bundle_says_what_each_lacks(service: ConfigService) -> None:
    error = refused(lambda: service.create(post("org/a", {"default": profile("unheard-of")})))
    assert (error.code, error.spec.status, error.param) == ("VALIDATION_ERROR", 422, "profiles.default")
    assert [each["message"][:4] for each in error.details["details"]] == ["fast", "slow"]


def test_what_cannot_be_published_is_a_warning_and_stands(start: Start) -> None:
    def fail(_: object) -> str:
        raise OSError("the broker is away")

    service = start(publish=fail)
    answer = service.create(post("org/a"), "key")
    assert (answer.status, [each[:20] for each in answer.body["warnings"]]) == (201, ["nats_publish_failed:"])
    assert "org/a" in service.registry.routes
    assert service.create(post("org/a"), "key").body == {**answer.body, "warnings": []}


def test_a_write_makes_nothing_anew_of_what_it_leaves_as_it_is(
    service: ConfigService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        service.create(post(f"org/m{number}"))
    checked: list[str] = []
    monkeypatch.setattr(held, "make_registry", None)
    monkeypatch.setattr(
        plans,
        "config_of_model",
        lambda model_id, model: checked.append(model_id) or held.config_of_model(model_id, model),
    )
    before = dict(service.registry.catalog.configs)
    service.create(post("org/m3", {"big": profile()}))
    service.put("org/m4", post("org/m4", license="x"))
    service.delete("org/m5")
    service.delete("org/m3")
    assert checked == ["org/m3", "org/m4"]
    kept = before.keys() - {"org/m3", "org/m4", "org/m5"}
    assert all(service.registry.catalog.configs[model_id] is before[model_id] for model_id in kept)


def test_another_base_is_served_at_once_and_what_was_written_stays_on_top(service: ConfigService) -> None:
    service.create(post("org/shipped", {"big": profile()}))
    service.create(post("org/a"))
    hashes = service.registry.config_hashes_hash
    service.rebase(base("{sie_id: org/new, hf_id: org/new, profiles: {default: {adapter_path: quick}}}"))
    assert service.sources == {"org/new": "filesystem", "org/shipped": "api", "org/a": "api"}
    assert set(exported(service)) == {"org/new", "org/shipped", "org/a"}
    assert service.registry.config_hashes_hash != hashes
    assert service.registry.catalog.config_epoch == 2
    assert service.delete("org/shipped").body["fallback"] is None
    assert "org/shipped" not in service.registry.routes
    assert service.create(post("org/new", {"big": profile()})).body["epoch"] == 4


def test_a_config_of_the_base_that_json_cannot_say_is_told_and_not_served(start: Start) -> None:
    service = start()
    number = "{default: {adapter_path: quick, adapter_options: {runtime: {n: 99999999999999999999999}}}}"
    service.rebase(base(SHIPPED, f"{{sie_id: org/large, hf_id: org/large, profiles: {number}}}"))
    assert set(exported(service)) == {"org/shipped"}
    assert "beyond 64 bits" in service.registry.catalog.problems[0].message


def test_code_of_others_runs_with_the_weights_alone_that_the_base_allows_it_for(start: Start) -> None:
    commit = "1" * 40
    allowed = f"hf_id: org/a, hf_revision: '{commit}', trust_remote_code: true"
    trusted = f"{{sie_id: org/a, {allowed}, profiles: {{default: {{adapter_path: quick}}}}}}"
    service = start()
    service.rebase(base(trusted))
    service.create(b"{sie_id: org/a, trust_remote_code: true, profiles: {more: {extends: default}}}")
    assert service.put("org/a", post("org/a", hf_revision=commit, trust_remote_code=True, license="x")).body["replaced"]
    for evil in ({"hf_id": "evil/b"}, {"hf_revision": None}, {"hf_id": None, "weights_path": "/tmp/evil"}):
        body = orjson.loads(post("org/a", hf_revision=commit, trust_remote_code=True)) | evil
        assert error_of(lambda body=body: service.put("org/a", orjson.dumps(body))) == "validation_error"
    service.rebase(base())
    assert error_of(lambda: service.put("org/a", post("org/a", trust_remote_code=True))) == "validation_error"


def test_true_and_one_are_two_values(service: ConfigService) -> None:
    def body(value: object) -> bytes:
        return post("org/a", {"default": profile(adapter_options={"runtime": {"normalize": value}})})

    service.create(body(True))
    assert error_of(lambda: service.create(body(1))) == "content_conflict"
    assert service.put("org/a", body(1)).body["replaced"]
    assert service.put("org/a", body(1.0)).body["unchanged"]


def test_a_start_tells_the_last_change_again_before_one_of_its_own(start: Start) -> None:
    first = start()
    first.create(post("org/a"))
    first.stop()
    told = Told()
    second = start(name="two", publish=told)
    second.create(post("org/b"))
    second.read_on()
    assert [(each.registry.catalog.config_epoch, each.model_id) for each in told] == [(1, "org/a"), (2, "org/b")]
