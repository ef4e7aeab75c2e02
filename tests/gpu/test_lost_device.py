"""What a real CUDA context says once it is lost, in a process of its own: this one needs its device."""

from __future__ import annotations

import subprocess
import sys

from tests.gpu.device import NEEDS_GPU

pytestmark = NEEDS_GPU

SCRIPT = """
import torch
from sie_core.contracts import DeviceLost, device_errors
from sie_pytorch.forward.transfers import Transfers

device = torch.device("cuda")
table, place = torch.zeros(4, 8, device=device), torch.tensor([7], device=device)
for attempt in range(2):
    try:
        with device_errors():
            copy = Transfers(device).download(table[place])
        copy.wait()
    except DeviceLost as error:
        print(error, flush=True)
"""


def test_an_assertion_on_the_device_loses_it_for_that_call_and_all_later_ones() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["device-side assert triggered"] * 2, done.stderr
