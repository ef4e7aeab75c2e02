"""Every architecture with random weights, over sequences longer than every window, against transformers' own model."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sie_pytorch.forward import BuiltRunner

from tests.pytorch.forward.support import (
    TOLERANCE,
    batch_for,
    build,
    deviation,
    forward,
    padded_states,
    reference_model,
)
from tests.pytorch.models import ARCHITECTURES, HIDDEN, LAYERS, POSITIONS

PACKED = [name for name, architecture in ARCHITECTURES.items() if architecture.packed]
PADDED = [name for name, architecture in ARCHITECTURES.items() if not architecture.packed]


@pytest.mark.parametrize("name", PACKED)
def test_packed_states_equal_the_padded_model(name: str, padded: Callable, runner: Callable) -> None:
    chosen: BuiltRunner = runner(name)
    assert chosen.info.name == "packed", chosen.info.reason
    states = forward(chosen, batch_for(name))
    for attention in ("eager", "sdpa"):
        assert deviation(states, padded(name, attention)) <= TOLERANCE


@pytest.mark.parametrize("name", [name for name in PADDED if name != "convbert"])
def test_models_that_cannot_be_packed_are_padded_and_right(name: str, padded: Callable, runner: Callable) -> None:
    chosen: BuiltRunner = runner(name)
    assert chosen.info.name == "padded", chosen.info.reason
    assert chosen.info.reason.startswith("not packed: ")
    assert deviation(forward(chosen, batch_for(name)), padded(name, "eager")) <= TOLERANCE


def test_a_model_that_padding_changes_is_never_padded(checkpoint: Callable, runner: Callable) -> None:
    chosen: BuiltRunner = runner("convbert")
    assert chosen.info.name == "padded (equal lengths)"
    batch = batch_for("convbert")
    model = reference_model("convbert", checkpoint("convbert"))
    alone = torch.cat([padded_states(model, batch.one(place)) for place in batch.places])
    assert deviation(forward(chosen, batch), alone) <= TOLERANCE
    assert deviation(padded_states(model, batch), alone) > TOLERANCE


@pytest.mark.parametrize("name", [*ARCHITECTURES, "new"])
def test_a_row_of_a_batch_equals_the_same_text_alone(name: str, runner: Callable) -> None:
    batch = batch_for(name if name in ARCHITECTURES else "nomic")
    states = forward(runner(name), batch)
    alone = torch.cat([forward(runner(name), batch.one(place)) for place in batch.places])
    assert deviation(states, alone) <= TOLERANCE


@pytest.mark.parametrize("name", ["bert", "modernbert", "mistral", "gemma2", "mpnet"])
def test_eager_attention_can_be_asked_for(name: str, checkpoint: Callable, runner: Callable) -> None:
    batch = batch_for(name)
    eager = build(checkpoint(name), attention_backend="eager")
    assert eager.info.name == runner(name).info.name
    assert deviation(forward(eager, batch), forward(runner(name), batch)) <= TOLERANCE


def test_facts_of_a_runner_come_from_the_model(runner: Callable) -> None:
    info = runner("roberta").info
    assert (info.model_type, info.hidden_size, info.attention_layers) == ("roberta", HIDDEN, LAYERS)
    assert info.max_sequence_length == POSITIONS
    assert info.precision == "float32"
    assert info.memory_bytes > 4 * POSITIONS * HIDDEN
    assert info.notes["runner"] == "packed"
    assert runner("t5").info.max_sequence_length is None


def test_a_padding_token_that_a_text_spells_out_is_numbered_as_the_model_does(
    checkpoint: Callable[[str], Path], runner: Callable
) -> None:
    batch = batch_for("roberta")
    batch.ids[[0, 5, 6, 40]] = 1  # <pad>, within texts
    model = reference_model("roberta", checkpoint("roberta"))
    with torch.inference_mode():
        alone = [model(input_ids=batch.ids[place][None]).last_hidden_state[0] for place in batch.places]
    assert deviation(forward(runner("roberta"), batch), torch.cat(alone)) <= TOLERANCE
