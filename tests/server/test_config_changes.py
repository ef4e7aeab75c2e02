"""A running server follows its models folder while a client keeps asking."""

from pathlib import Path

from tests.server.asking import dims, fake_config, hammering, until


def write(folder: Path, name: str, dim: int) -> None:
    """Write the config of a fake in one step, as an editor or a mounted volume does."""
    fresh = folder / f".{name}.new"
    fresh.write_text(fake_config(name, dim))
    fresh.replace(folder / f"{name}.yaml")


def test_configs_are_followed_without_losing_a_request(start_server, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write(models, "steady", 4)
    server = start_server({"SIE_MODELS_DIR": str(models), "SIE_PLUGINS": "fake"}, ["--preload", "test/steady"])
    with hammering(server.url, "steady") as answers:
        write(models, "added", 6)
        until(server.url, "added", 6)
        write(models, "steady", 5)
        until(server.url, "steady", 5)
        (models / "steady.yaml").write_text("sie_id: [")
        (models / "added.yaml").unlink()
        until(server.url, "added", None)
        assert dims(server.url, "steady") == 5
    assert set(answers) == {4, 5}
    assert answers == sorted(answers)
