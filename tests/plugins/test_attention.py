"""`SIE_ATTENTION_BACKEND` among what the registered runners name."""

import pytest

from sie_core.contracts import Device, PluginError, RunnerSpec
from sie_core.plugins.selection import require_attention_backend
from sie_core.settings import load_settings

PLAIN = RunnerSpec("plain", "some.Runner", "some:Runner")
FLASH = RunnerSpec(
    "flash",
    "some.Runner",
    "some:Flash",
    devices=frozenset({"cuda"}),
    attention_backends=frozenset({"auto", "flash_attention_2"}),
)


@pytest.mark.parametrize("wanted", ["auto", "sdpa", "eager"])
def test_what_every_runner_has_needs_none(wanted):
    require_attention_backend(wanted, [], Device("cpu"))


def test_a_backend_that_a_runner_names_can_be_asked_for():
    require_attention_backend("flash_attention_2", [PLAIN, FLASH], Device("cuda"))


def test_one_that_none_names_is_refused_with_those_there_are():
    there = "flash_attention_3 is not installed; there are auto, eager, flash_attention_2, sdpa. Install a plugin"
    with pytest.raises(PluginError, match=there):
        require_attention_backend("flash_attention_3", [PLAIN, FLASH], Device("cuda"))


def test_a_strangers_backend_can_be_set_and_asked_for(monkeypatch):
    monkeypatch.setenv("SIE_ATTENTION_BACKEND", "acme_kernels")
    theirs = RunnerSpec("acme", "some.Runner", "acme:Runner", attention_backends=frozenset({"acme_kernels"}))
    require_attention_backend(load_settings().attention_backend, [PLAIN, theirs], Device("cpu"))


def test_one_for_another_device_is_refused_with_that_device():
    with pytest.raises(PluginError, match="needs a device cuda, and this is cpu"):
        require_attention_backend("flash_attention_2", [PLAIN, FLASH], Device("cpu"))


def test_a_runner_is_tried_under_the_backends_it_names_alone():
    assert FLASH.serves("bert", "cuda")
    assert FLASH.serves("bert", "cuda", "flash_attention_2")
    assert not FLASH.serves("bert", "cuda", "sdpa")
    assert not FLASH.serves("bert", "cpu", "auto")
    assert PLAIN.serves("bert", "cuda", "flash_attention_2")
