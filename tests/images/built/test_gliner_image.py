"""The CPU image of `gliner` with a tiny model baked: it extracts without a network what gliner itself extracts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cache import fake_hub
from tests.gliner.library import library
from tests.images.built.conftest import build
from tests.images.built.tools import ROOT, VERSION, check_size, compressed, container, files_of, inspect, make_lock

pytestmark = pytest.mark.timeout(3000)  # base, wheels and image are made on first use
MODEL = "urchade/gliner_small-v2.1"
TEXT, LABELS = "the old note of a new river in the city with food", ["person", "city", "food"]
THRESHOLD = 0.3
ASK = f"""
import json, sys, time, urllib.request
body = {{"items": [{{"text": {TEXT!r}}}], "params": {{"labels": {LABELS!r}, "options": {{"threshold": {THRESHOLD}}}}}}}
request = urllib.request.Request("http://127.0.0.1:8080/v1/extract/{MODEL}", json.dumps(body).encode(),
    {{"Content-Type": "application/json"}})
end = time.monotonic() + 300
while True:
    try:
        print(urllib.request.urlopen(request, timeout=300).read().decode())
        break
    except urllib.error.HTTPError as error:  # 503 while it starts and loads
        if error.code != 503 or time.monotonic() > end:
            sys.exit(error.read().decode())
    except OSError:
        if time.monotonic() > end:
            raise
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library().write(tmp_path_factory.mktemp("checkpoint"), "span")


@pytest.fixture(scope="module")
def image(all_images: None, checkpoint: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of the bundle `gliner` with the tiny checkpoint in the place of a model that it serves."""
    folder = tmp_path_factory.mktemp("bundle") / "gliner"
    shutil.copytree(ROOT / "bundles/gliner", folder)
    with (folder / "bundle.yaml").open("a") as file:
        file.write(f"models:\n  - {{id: {MODEL}, revision: {fake_hub.COMMIT}, bake: true}}\n")
    make_lock("gliner", ["torch==2.13.0+cpu", "sie-gliner", "sie-cpu", "sie-objectstore"], folder, wheels)
    with fake_hub.run_hub() as hub, pytest.MonkeyPatch.context() as patch:
        hub.files[MODEL] = {
            str(file.relative_to(checkpoint)): file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()
        }
        for name, value in {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "SIE_HF_FALLBACK": "true"}.items():
            patch.setenv(name, value)
        build(folder, folder, "--tag", f"localhost/sie-server:{VERSION}-gliner")
    return f"localhost/sie-server:{VERSION}-gliner"


def test_it_extracts_what_gliner_does_and_ends_by_sigterm(image: str, checkpoint: Path, tmp_path: Path) -> None:
    options = ("--memory", "1g", "--volume", "/cache", "--env", "SIE_DEFAULT_COMPUTE_PRECISION=float32")
    with container(image, tmp_path / "log", *options) as one:
        found = json.loads(one.python(ASK))["items"][0]["entities"]
        wanted = library().entities(checkpoint, TEXT, LABELS, threshold=THRESHOLD)
        assert wanted
        assert [(each["start"], each["end"], each["label"]) for each in found] == [
            (each["start"], each["end"], each["label"]) for each in wanted
        ]
        assert [each["score"] for each in found] == pytest.approx([each["score"] for each in wanted], abs=1e-4)
        assert one.stop() == 0


def test_its_size_is_that_of_its_libraries(image: str) -> None:
    check_size("gliner", compressed(files_of(image)[1]), inspect(image)["Size"])
