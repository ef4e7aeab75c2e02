"""The CPU image of `gliner` with a tiny model baked: it extracts without a network what gliner itself extracts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gliner.library import library
from tests.images.built.conftest import GLINER
from tests.images.built.programs import container, files_of, inspect
from tests.images.built.tools import check_size, compressed

pytestmark = pytest.mark.timeout(3000)  # base, wheels and image are made on first use
TEXT, LABELS = "the old note of a new river in the city with food", ["person", "city", "food"]
THRESHOLD = 0.3
ASK = f"""
import json, sys, time, urllib.request
body = {{"items": [{{"text": {TEXT!r}}}], "params": {{"labels": {LABELS!r}, "options": {{"threshold": {THRESHOLD}}}}}}}
request = urllib.request.Request("http://127.0.0.1:8080/v1/extract/{GLINER}", json.dumps(body).encode(),
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


def test_it_extracts_what_gliner_does_and_ends_by_sigterm(gliner_image: str, checkpoint: Path, tmp_path: Path) -> None:
    options = ("--memory", "1g", "--volume", "/cache", "--env", "SIE_DEFAULT_COMPUTE_PRECISION=float32")
    with container(gliner_image, tmp_path / "log", *options) as one:
        found = json.loads(one.python(ASK))["items"][0]["entities"]
        wanted = library().entities(checkpoint, TEXT, LABELS, threshold=THRESHOLD)
        assert wanted
        assert [(each["start"], each["end"], each["label"]) for each in found] == [
            (each["start"], each["end"], each["label"]) for each in wanted
        ]
        assert [each["score"] for each in found] == pytest.approx([each["score"] for each in wanted], abs=1e-4)
        assert one.stop() == 0


def test_its_size_is_that_of_its_libraries(gliner_image: str) -> None:
    with files_of(gliner_image) as files:
        check_size("gliner", compressed(files), inspect(gliner_image)["Size"])
