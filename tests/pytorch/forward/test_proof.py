"""The choice of a runner: by priority, on proof at load, with the reason kept."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_pytorch.forward import INTERFACE
from sie_pytorch.forward.checkpoint.reading import load_model
from sie_pytorch.forward.choice.probes import PROBE_LENGTHS, PROBE_WINDOW, narrow_windows
from sie_pytorch.forward.specs import RUNNERS

from sie_core.contracts import OutOfDeviceMemory, RunnerSpec
from tests.pytorch.forward.support import (
    LONG,
    PACKED,
    TOLERANCE,
    build,
    deviation,
    forward,
    packed_batch,
    padded_states,
    reference_model,
    with_expansion,
)
from tests.pytorch.forward.test_low_rank import factors_for


def spec(name: str, **fields: object) -> RunnerSpec:
    arguments = {"interface": INTERFACE, "target": f"tests.pytorch.forward.faulty_runners:{name}", "priority": 10}
    return RunnerSpec(name=name, **{**arguments, **fields})  # type: ignore[arg-type]


def test_our_own_runner_is_registered_for_the_interface() -> None:
    assert {row.interface for row in RUNNERS} == {INTERFACE}
    assert [row.name for row in PACKED] == ["packed"]


@pytest.mark.parametrize("name", ["bert", "roberta", "mistral", "gemma3", "embeddinggemma", "modernbert"])
@pytest.mark.parametrize("fault", ["OneSegment", "NotANumber"])
def test_a_runner_with_wrong_numbers_is_refused(name: str, fault: str, checkpoint: Callable) -> None:
    chosen = build(checkpoint(name), [spec(fault), *PACKED])
    assert chosen.info.name == "packed"
    assert f"not {fault}: its states differ from each sequence alone by" in chosen.info.notes["runner_reason"]


@pytest.mark.parametrize("name", ["bert", "distilbert", "albert"])
def test_a_runner_with_wrong_positions_is_refused(name: str, checkpoint: Callable) -> None:
    chosen = build(checkpoint(name), [spec("LatePositions"), *PACKED])
    assert chosen.info.name == "packed"
    assert "not LatePositions: its states differ" in chosen.info.reason


def test_reasons_of_all_that_were_passed_over_are_kept(checkpoint: Callable, caplog: pytest.LogCaptureFixture) -> None:
    specs = [
        spec("Broken", priority=3),
        spec("Unfit", priority=2),
        spec("NoSuchClass", priority=1),
        spec("OtherType", priority=9, model_types=frozenset({"mistral"})),
        spec("OtherDevice", priority=9, devices=frozenset({"cuda"})),
        spec("OtherInterface", priority=9, interface="elsewhere.Runner"),
    ]
    with caplog.at_level(logging.DEBUG, "sie_pytorch"):
        chosen = build(checkpoint("bert"), specs)
    assert chosen.info.name == "padded"
    assert chosen.info.reason.startswith(
        "not Broken: it failed with ZeroDivisionError; not Unfit: it has no kernels for bert; "
        "not NoSuchClass: it failed with AttributeError; equals each probe sequence alone within "
    )
    assert f"bert runs on the padded runner in float32: {chosen.info.reason}" in caplog.text


def test_the_highest_priority_serves(checkpoint: Callable) -> None:
    chosen = build(checkpoint("bert"), [*RUNNERS, spec("Sound", priority=11)])
    assert chosen.info.name == "Sound"
    chosen = build(checkpoint("bert"), [*PACKED, spec("Sound", priority=-1)])
    assert chosen.info.name == "packed"
    chosen = build(checkpoint("bert"), [*PACKED, *RUNNERS])
    assert chosen.info.name == "encoder-loop"


@pytest.mark.parametrize(
    ("interface", "remedy"),
    [
        ("sie.runner/1", "upgrade the distribution that registers it"),
        ("sie_pytorch.forward.Runner", "upgrade the distribution that registers it"),
        ("sie.runner/4", "upgrade sie-pytorch"),
    ],
)
def test_a_runner_of_another_version_of_the_interface_is_refused_by_name_with_the_remedy(
    interface: str, remedy: str, checkpoint: Callable
) -> None:
    chosen = build(checkpoint("bert"), [spec("Sound", interface=interface), *PACKED])
    assert chosen.info.name == "packed"
    told = f"not Sound: it follows {interface}, and this sie-pytorch runs sie.runner/3: {remedy}; "
    assert chosen.info.notes["runner_reason"].startswith(told)


@pytest.mark.parametrize("interface", ["sie.runner/2", INTERFACE])
def test_a_runner_of_the_version_before_is_served_with_all_that_it_takes(interface: str, checkpoint: Callable) -> None:
    batch = with_expansion(packed_batch((30, 9, 1), types=2))
    expected = build(checkpoint("bert"), expands_queries=True)
    for name in ("Version2", "LoraVersion2"):
        built = build(checkpoint("bert"), [spec(name, interface=interface)], expands_queries=True)
        assert (built.info.name, built.info.notes["written"]) == (name, "long ago"), built.info.reason
        assert torch.equal(forward(built, batch), forward(expected, batch))
    assert built.linear_shapes == expected.linear_shapes
    low_rank = factors_for(built.linear_shapes, dict(built.linear_shapes), seed=1)
    assert torch.equal(forward(built, batch, low_rank), forward(expected, batch, low_rank))


def test_a_runner_asked_for_by_name_is_tried_first_and_another_serves_where_it_is_unfit(checkpoint: Callable) -> None:
    assert build(checkpoint("bert"), RUNNERS, runner="packed").info.name == "packed"
    assert build(checkpoint("bert"), RUNNERS, runner="padded").info.name == "padded"
    chosen = build(checkpoint("bert"), [*RUNNERS, spec("Unfit", priority=-9)], runner="Unfit")
    assert chosen.info.name == "encoder-loop"
    assert chosen.info.reason.startswith("not Unfit: it has no kernels for bert; ")


def test_a_runner_without_lora_serves_unless_adapters_are_asked_for(checkpoint: Callable) -> None:
    specs = [spec("WithoutLora"), *PACKED]
    without, with_lora = (build(checkpoint("bert"), specs, needs_lora=needed) for needed in (False, True))
    assert (without.info.name, without.takes_lora, dict(without.linear_shapes)) == ("WithoutLora", False, {})
    assert "Its runner, WithoutLora, applies none" in without.info.notes["lora"]
    assert (with_lora.info.name, with_lora.takes_lora) == ("packed", True)
    assert with_lora.info.reason.startswith("not WithoutLora: it takes no LoRA adapters, and the model's config asks")
    assert "lora" not in with_lora.info.notes


def test_a_device_without_room_is_told_apart_from_a_broken_runner(checkpoint: Callable) -> None:
    with pytest.raises(OutOfDeviceMemory, match="cpu has no room"):
        build(checkpoint("bert"), [spec("Hungry"), *PACKED])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mpnet", "does not let its attention be exchanged"),
        ("deberta", "does not let its attention be exchanged"),
        ("deberta-v2", "does not let its attention be exchanged"),
        ("rembert", "does not let its attention be exchanged"),
        ("convbert", "does not let its attention be exchanged"),
        ("t5", "takes no position_ids"),
        ("gemma2", "takes softcap"),
    ],
)
def test_models_whose_attention_is_their_own_are_refused_with_the_reason(
    name: str, reason: str, runner: Callable
) -> None:
    assert reason in runner(name).info.reason.split("; ")[0]


@pytest.fixture
def wide(checkpoint: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copy a checkpoint with windows as wide as published ones."""

    def copy(name: str) -> Path:
        folder = Path(shutil.copytree(checkpoint(name), tmp_path / name))
        config = json.loads((folder / "config.json").read_text())
        field = "local_attention" if name == "modernbert" else "sliding_window"
        (folder / "config.json").write_text(json.dumps({**config, field: 256}))
        return folder

    return copy


WIDE = ["modernbert", "mistral", "phi3", "qwen2", "gemma3", "embeddinggemma"]


def windows_of(model: Any) -> list[int]:
    holders = [model.config, *model.modules()]
    return [width for holder in holders if (width := getattr(holder, "sliding_window", None)) is not None]


@pytest.mark.parametrize("name", WIDE)
def test_wide_windows_are_narrowed_for_the_proof_and_come_back(name: str, wide: Callable[[str], Path]) -> None:
    model = load_model(wide(name), torch.float32, torch.device("cpu"))
    before = windows_of(model)
    assert min(before) > max(PROBE_LENGTHS)
    with narrow_windows(model):
        assert max(windows_of(model)) <= PROBE_WINDOW + 1 < max(PROBE_LENGTHS)
    assert windows_of(model) == before


@pytest.mark.parametrize("name", WIDE)
def test_a_runner_that_forgets_a_wide_window_is_refused(name: str, wide: Callable[[str], Path]) -> None:
    folder = wide(name)
    chosen = build(folder, [spec("NoWindow"), *PACKED])
    assert chosen.info.name == "packed"
    assert "not NoWindow: its states differ" in chosen.info.reason
    batch = packed_batch(LONG)
    expected = padded_states(reference_model(name, folder), batch)
    assert deviation(forward(chosen, batch), expected) <= TOLERANCE


@pytest.mark.parametrize("name", ["mistral", "gemma3"])
def test_a_runner_that_copies_the_width_of_windows_is_refused_and_not_left_with_those_of_the_proof(
    name: str, wide: Callable[[str], Path]
) -> None:
    chosen = build(wide(name), [spec("KeepsWindows"), *PACKED])
    assert chosen.info.name == "packed"
    assert "not KeepsWindows: its states differ" in chosen.info.reason
