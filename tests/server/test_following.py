"""A running server follows its models folder while a client keeps asking."""

import threading
import time
from pathlib import Path

import httpx
import yaml

BOUND_S = 30


def write(folder: Path, name: str, dim: int) -> None:
    """Write the config of a fake in one step, as an editor or a mounted volume does."""
    config = {
        "sie_id": f"test/{name}",
        "package_backed": True,
        "tasks": {"encode": {"dense": {"dim": dim}}},
        "profiles": {"default": {"adapter_path": "fake"}},
    }
    fresh = folder / f".{name}.new"
    fresh.write_text(yaml.safe_dump(config))
    fresh.replace(folder / f"{name}.yaml")


def dims(url: str, name: str) -> int | None:
    answer = httpx.post(f"{url}/v1/encode/test/{name}", json={"items": [{"text": "a"}]}, headers={"Prefer": "wait=20"})
    if answer.status_code == 404:
        return None
    assert answer.status_code == 200, answer.text
    return len(answer.json()["items"][0]["dense"]["values"])


def until(url: str, name: str, wanted: int | None) -> None:
    end = time.monotonic() + BOUND_S
    while dims(url, name) != wanted:
        assert time.monotonic() < end, f"{name} never answered with {wanted}"


def test_configs_are_followed_without_losing_a_request(start_server, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write(models, "steady", 4)
    server = start_server({"SIE_MODELS_DIR": str(models)}, ["--preload", "test/steady"])
    answers: list[int | None] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answers.append(dims(server.url, "steady"))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        write(models, "added", 6)
        until(server.url, "added", 6)
        write(models, "steady", 5)
        until(server.url, "steady", 5)
        (models / "steady.yaml").write_text("sie_id: [")
        (models / "added.yaml").unlink()
        until(server.url, "added", None)
        assert dims(server.url, "steady") == 5
    finally:
        stop.set()
        asking.join(BOUND_S)
    assert set(answers) == {4, 5}
    assert answers == sorted(answers)
