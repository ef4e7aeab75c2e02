"""A load that needs room can be followed in a few files."""

import sys
import threading
from pathlib import Path

import sie_core.engine
from sie_core.engine.models.record import ModelRecord, State
from sie_core.engine.residency.lifecycle import Lifecycle
from tests.engine.conftest import bounded, request, until

MB = 1_000_000
ROOT = Path(sie_core.engine.__file__).parent
MOST_FILES = 9


class Way:
    """The files of the engine whose functions run, on any thread, from `Lifecycle.acquire` until the model is READY.

    `engine.py` is none of them: the request waits there. Nor are those of the device's thread, which wakes up
    meanwhile and finds no work.
    """

    def __init__(self):
        self.files = set()
        self.armed = self.open = False

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if self.armed and event == "call" and code is Lifecycle.acquire.__code__:
            self.armed, self.open = False, True
        on_device = threading.current_thread().name.startswith("sie-device")
        if self.open and not on_device and code.co_filename.startswith(str(ROOT)):
            self.files.add(str(Path(code.co_filename).relative_to(ROOT)))
        if event == "return" and code is ModelRecord.move.__code__ and frame.f_locals["to"] is State.READY:
            self.open = False


async def test_a_load_that_evicts_runs_through_at_most_nine_files_of_the_engine(engines, hurried):
    first, second = (engines.model(name, memory_bytes=100 * MB, takes_lora=True, loras={"tuned": MB}) for name in "ab")
    way = Way()
    threading.setprofile(way)
    sys.setprofile(way)
    try:
        engine = await engines.start(device="fake", memory_limit_bytes=200 * MB)
        await bounded(engine.infer(request(first, "loads beside nothing", options={"lora": "tuned"})))
        await until(lambda: not any(each.leases for each in engine.status().models))  # its batch has ended too
        way.armed = True
        await bounded(engine.infer(request(second, "loads in its place")))
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    assert [each.state for each in engine.models() if each.id in (first, second)] == ["available", "loaded"]
    assert len(way.files - {"engine.py"}) <= MOST_FILES, sorted(way.files)
    assert {"residency/lifecycle.py", "residency/unloader.py", "models/loras.py"} <= way.files
