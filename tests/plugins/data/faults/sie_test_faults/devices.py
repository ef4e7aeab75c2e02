"""Device probes that are asked before every other one."""

import os
import threading

from sie_core.hookspecs import hookimpl


class Probe:
    priority = 1000

    def __init__(self, kind, devices):
        self.kind = kind
        self.devices = devices

    def memory(self, device):
        raise AssertionError(device)

    free_caches = memory


def no_driver():
    raise RuntimeError("the driver is of another release")


def hang():
    if os.environ.get("FAULTS_HANG"):
        threading.Event().wait()
    return []


class Raises:
    INTERFACES = ("sie.probe/1",)

    @staticmethod
    @hookimpl
    def sie_device_probes():
        return [Probe("probe-that-raises", no_driver)]


class Junk:
    INTERFACES = ("sie.probe/1",)

    @staticmethod
    @hookimpl
    def sie_device_probes():
        return [Probe("probe-of-junk", lambda: ["npu:0"])]


class Hangs:
    INTERFACES = ("sie.probe/1",)

    @staticmethod
    @hookimpl
    def sie_device_probes():
        return [Probe("probe-that-hangs", hang)]
