"""`sie config diff`, `apply` and `export`: a folder of configs, as in git, and a service that runs."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result

from sie_core.cli import main
from tests.config_service.program.conftest import ADMIN, TOKENS, config_server
from tests.config_service.program.test_http import CONFIG, MODELS, epoch
from tests.conftest import MINILM, Server
from tests.docs.following import follow, steps

Run = Callable[..., Result]
BOUND_S = 60.0
PAGE = Path(__file__).parents[3] / "docs/operate/cluster/configs-from-git.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of these tests alone: one changes a model of its image, whose epoch then tells."""
    with config_server(tmp_path_factory.mktemp("folder"), TOKENS) as server:
        yield server


@pytest.fixture
def run(server: Server) -> Iterator[Run]:
    """Run `sie config …` as an operator; what it wrote is removed afterwards."""

    def run(*args: object, env: Mapping[str, str] | None = None) -> Result:
        given = {**TOKENS, "SIE_CONFIG_SERVICE_URL": server.url, **(env or {})}
        return CliRunner().invoke(main, ["config", *map(str, args)], env=given)

    yield run
    with httpx.Client(base_url=server.url, headers=ADMIN, timeout=60) as client:
        for each in client.get("/v1/configs/export").json()["models"]:
            if each["source"] == "api":
                client.delete(f"{MODELS}/{each['model_id']}")


def config(name: str, **fields: Any) -> dict[str, Any]:
    return {**CONFIG, "sie_id": f"acme/{name}", **fields}


def write(folder: Path, **configs: object) -> Path:
    """Write configs, each under its name; text as it is."""
    folder.mkdir(exist_ok=True)
    for name, content in configs.items():
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        (folder / f"{name}.yaml").write_text(text)
    return folder


def actions(result: Result) -> dict[str, str]:
    """What was done with each model, of JSON."""
    return {each["id"]: each["action"] for each in json.loads(result.stdout)["models"]}


def test_a_folder_is_told_applied_once_and_exported(server: Server, run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "configs", one=config("one"), two=config("two"))
    write(folder / ".github", workflow="on: push")
    write(folder / "below", three=config("three"))
    before = epoch(server)
    told = run("diff", folder, env={"SIE_ADMIN_TOKEN": ""})
    assert (told.exit_code, epoch(server)) == (2, before)
    assert told.stdout.splitlines() == [
        *(f"+ acme/{name}: create: default, q" for name in ("one", "three", "two")), "create 3",
    ]  # fmt: skip
    assert run("apply", folder, "--dry-run").stdout == told.stdout
    applied = run("apply", folder)
    assert (applied.exit_code, applied.stdout, epoch(server)) == (0, told.stdout, before + 3)
    assert "SIE_GATEWAY_URL names no gateway" in applied.stderr
    assert [run(*args, folder).exit_code for args in (("diff",), ("apply",), ("apply", "--replace"))] == [0, 0, 0]
    assert run("apply", folder).stdout == "same 3\n"
    assert epoch(server) == before + 3
    assert run("export", tmp_path / "out").stdout == "3 models\n"
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        f"acme__{name}.yaml" for name in ("one", "three", "two")
    ]
    assert run("diff", tmp_path / "out", "--prune").exit_code == 0
    refused = run("export", tmp_path / "out")
    assert (refused.exit_code, "is not empty" in refused.stderr) == (1, True)


def test_profiles_are_added_other_content_is_refused_unless_replaced_and_the_rest_pruned(
    server: Server, run: Run, tmp_path: Path
) -> None:
    profiles = CONFIG["profiles"]
    assert isinstance(profiles, dict)
    folder = write(tmp_path / "configs", one=config("one"), two=config("two"))
    assert run("apply", folder).exit_code == 0
    write(folder, one=config("one", profiles={**profiles, "more": {"extends": "default"}}))
    told = run("apply", folder, "--json")
    assert (told.exit_code, actions(told)) == (0, {"acme/one": "change", "acme/two": "same"})
    write(folder, one=config("one", profiles={"q": {"extends": "default"}, "default": {"max_batch_tokens": 7}}))
    before = epoch(server)
    refused = run("apply", folder)
    file = folder / "one.yaml"
    line = 1 + file.read_text().splitlines().index("  default:")
    assert (refused.exit_code, epoch(server)) == (1, before)
    assert refused.stderr.startswith(f"{file}:{line}: acme/one has the profiles default already, with other content.")
    assert run("diff", folder, "--replace").stdout.splitlines()[0] == "~ acme/one: replace"
    assert run("apply", folder, "--replace").exit_code == 0
    write(folder, one=config("one", profiles={"default": {"max_batch_tokens": 7}}))
    (folder / "two.yaml").unlink()
    kept = run("diff", folder)
    assert (kept.exit_code, kept.stdout.count("? acme/")) == (0, 2)
    assert "does not have its profiles q; --replace removes them" in kept.stdout
    pruned = run("apply", folder, "--replace", "--prune", "--json")
    assert (pruned.exit_code, actions(pruned)) == (0, {"acme/one": "replace", "acme/two": "remove"})
    assert run("diff", folder, "--replace", "--prune").stdout == "same 1\n"


def test_a_model_of_the_image_is_put_back_by_prune(server: Server, run: Run, tmp_path: Path) -> None:
    served = httpx.get(f"{server.url}/v1/configs/export", headers=ADMIN, timeout=60).json()["models"]
    image = next(each["model_config"] for each in served if each["model_id"] == MINILM)
    folder = write(tmp_path / "configs", one=config("one"), minilm=image)
    assert actions(run("apply", folder, "--json")) == {"acme/one": "create", MINILM: "same"}
    write(folder, minilm={"profiles": {"default": {}}, **image, "weight": 3})
    assert actions(run("apply", folder, "--replace", "--json"))[MINILM] == "replace"
    (folder / "minilm.yaml").unlink()
    pruned = run("apply", folder, "--prune")
    assert (pruned.exit_code, "the config of the service's image is served again" in pruned.stdout) == (0, True)


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcde", "bcdef", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (BOMB, 1, "its aliases expand to more than"),
        ("sie_id: acme/x\nprofiles: [", 2, "not valid YAML"),
        ("sie_id: acme/x\nhf_id: acme/x\nsie_id: acme/y", 3, "given twice"),
        ("- a list", 1, "a model config is a map of fields, not list"),
        ("hf_id: acme/x", 1, "sie_id: the field is needed"),
        ("hf_id: acme/x\nsie_id: ../x", 2, "an id is letters"),
        ("hf_id: acme/x\nsie_id: 12", 2, "a text is needed"),
        ("sie_id: acme/x\nhf_id: acme/x\nprofiles:\n  default:\n    surprise: 1", 5, "surprise"),
        ("sie_id: acme/x\nhf_id: acme/x\nprofiles:\n  default: {adapter_path: none}", 4, "no bundle can serve it"),
        ("sie_id: acme/x\nhf_id: acme/x\npool: 3\nprofiles: {default: {}, q: 7}", 3, "pool"),
        ("sie_id: acme/one\nhf_id: acme/one\nprofiles: {default: {}}", 1, "two.yaml:3 has this id too"),
    ],
    ids=["bomb", "yaml", "key twice", "list", "no id", "bad id", "number", "unknown", "unroutable", "types", "twice"],
)
def test_what_is_wrong_is_told_by_file_and_line_and_nothing_is_written(
    server: Server, run: Run, tmp_path: Path, text: str, line: int, told: str
) -> None:
    weights = "weights: {model_type: bert, architectures: [BertModel]}"
    good = f"hf_id: acme/one\n{weights}\nsie_id: acme/one\nprofiles: {{default: {{}}}}"
    folder, before = write(tmp_path / "configs", two=good, wrong=text), epoch(server)
    for verb in ("diff", "apply"):
        refused = run(verb, folder)
        assert refused.exit_code == 1
        lines = [each for each in refused.stderr.splitlines() if each.startswith(f"{folder}/wrong.yaml:{line}: ")]
        assert told in lines[0], refused.stderr
        problems = json.loads(run(verb, folder, "--json").stdout)["problems"]
        assert (problems[0]["file"], problems[0]["line"]) == (f"{folder}/wrong.yaml", line)
    assert epoch(server) == before


@pytest.mark.parametrize(
    ("args", "env", "told"),
    [
        ((), {"SIE_ADMIN_TOKEN": "wrong"}, "answered 403 to GET /v1/configs/export: This token may not"),
        ((), {"SIE_ADMIN_TOKEN": ""}, "answered 403 to POST /v1/configs/models: This token may not write"),
        ((), {"SIE_CONFIG_SERVICE_URL": "http://127.0.0.1:1"}, "http://127.0.0.1:1 cannot be reached"),
        ((), {"SIE_CONFIG_SERVICE_URL": ""}, "SIE_CONFIG_SERVICE_URL is not set"),
        (("--wait", "soon"), {}, "'soon' is no time"),
        (("--surprise",), {}, "No such option"),
    ],
    ids=["wrong token", "read token", "away", "unset", "no time", "option"],
)
def test_every_error_exits_with_1(
    server: Server, run: Run, tmp_path: Path, args: tuple[str, ...], env: dict[str, str], told: str
) -> None:
    folder, before = write(tmp_path / "configs", one=config("one")), epoch(server)
    result = run("apply", folder, *args, env=env)
    assert (result.exit_code, told in result.stderr) == (1, True), result.stderr
    assert epoch(server) == before
    assert "the-" not in result.output


def test_an_empty_folder_is_no_reason_to_prune(run: Run, tmp_path: Path) -> None:
    assert run("apply", write(tmp_path / "configs", one=config("one"))).exit_code == 0
    result = run("apply", write(tmp_path / "empty"), "--prune")
    assert (result.exit_code, "no .yaml file" in result.stderr) == (1, True)
    assert run("diff", tmp_path / "configs").exit_code == 0


def test_the_commands_of_the_page_print_what_it_says(server: Server, run: Run, tmp_path: Path) -> None:
    (step,) = steps(PAGE)
    code = step.code.replace("SIE_ADMIN_TOKEN=…", "SIE_ADMIN_TOKEN=the-admin")
    follow(replace(step, code=code), server.url, tmp_path)
    assert run("diff", tmp_path / "configs").exit_code == 0


def apply_in_a_process(folder: Path, env: dict[str, str]) -> None:
    os.environ.update(env)
    main(["config", "apply", str(folder)])


def test_killed_at_ten_random_points_and_run_again_it_ends_the_same(server: Server, run: Run, tmp_path: Path) -> None:
    wanted = {f"m{number:02}": config(f"m{number:02}") for number in range(30)}
    folder, begin = write(tmp_path / "configs", **wanted), epoch(server)
    env = {**TOKENS, "SIE_CONFIG_SERVICE_URL": server.url}
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__, "sie_cluster.cli.config.changes"])
    exits: list[int | None] = []
    with httpx.Client(base_url=server.url, headers=ADMIN, timeout=BOUND_S) as client:  # a new one each time is slow
        for kill_at in sorted(random.Random(1).sample(range(1, len(wanted) - 5), 10)):
            process = processes.Process(target=apply_in_a_process, args=(folder, env))
            process.start()
            while client.get("/v1/configs/epoch").json()["epoch"] < begin + kill_at and process.is_alive():
                pass
            process.kill()
            process.join(BOUND_S)
            exits.append(process.exitcode)
    # On a busy machine one may end before the signal reaches it.
    assert (set(exits) <= {0, -signal.SIGKILL}, exits.count(-signal.SIGKILL) >= 5) == (True, True), exits
    assert run("apply", folder).exit_code == 0
    assert (epoch(server), run("diff", folder).stdout) == (begin + len(wanted), f"same {len(wanted)}\n")
