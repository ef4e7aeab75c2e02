"""`SIE_ATTENTION_BACKEND` among what the registered runners name."""

import pytest

from sie_core.contracts import Device, PluginError, RunnerSpec
from sie_core.engine.device.attention import require_attention_backend

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


def test_one_that_none_names_is_refused_with_what_installs_it():
    with pytest.raises(PluginError, match=r"flash_attention_2 is not installed. Run `pip install .*flash-attn"):
        require_attention_backend("flash_attention_2", [PLAIN], Device("cuda"))


def test_one_for_another_device_is_refused_with_that_device():
    with pytest.raises(PluginError, match="needs a device cuda, and this is cpu"):
        require_attention_backend("flash_attention_2", [PLAIN, FLASH], Device("cpu"))


def test_a_runner_is_tried_under_the_backends_it_names_alone():
    assert FLASH.serves("bert", "cuda")
    assert FLASH.serves("bert", "cuda", "flash_attention_2")
    assert not FLASH.serves("bert", "cuda", "sdpa")
    assert not FLASH.serves("bert", "cpu", "auto")
    assert PLAIN.serves("bert", "cuda", "flash_attention_2")
