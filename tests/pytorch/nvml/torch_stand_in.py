"""PyTorch on a machine with two GPUs, as far as the CUDA probe asks it: imported as `torch` by the test's process."""

import json
import os
from types import SimpleNamespace

DEVICES = json.loads(os.environ["TEST_TORCH"])


def _field(name):
    return lambda index: DEVICES[index][name]


cuda = SimpleNamespace(
    get_device_properties=lambda index: SimpleNamespace(**DEVICES[index]["properties"]),
    memory_allocated=_field("allocated"),
    memory_reserved=_field("reserved"),
    mem_get_info=_field("info"),
)
