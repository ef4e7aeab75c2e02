"""Records of architectures: found by model type, completed by those they are like, and read without a model library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sie_text.architectures import (
    RECORDS,
    Architecture,
    Feature,
    architecture_of,
    find_architecture,
    has_classifier,
    is_encoder,
    translate,
)

from sie_core.contracts import ArchitectureRecord, ModelCard, ModelLoadError


def known(*records: ArchitectureRecord) -> dict[str, ArchitectureRecord]:
    return {each.name: each for each in records}


def test_a_record_has_what_it_leaves_open_from_those_it_is_like() -> None:
    records = known(Architecture("b", like="a", classifier=False), Architecture("a", like="bert", encoder=False))
    found, bert = find_architecture("b", records), find_architecture("bert")
    assert found is not None
    assert bert is not None
    assert (found.name, found.served_as, found.layers) == ("b", "bert", bert.layers)
    assert (found.encoder, found.classifier) == (False, False)


def test_a_record_with_a_class_is_served_as_itself_and_those_like_it_as_it() -> None:
    records = known(Architecture("own", like="bert", model="m:C"), Architecture("same", like="own"))
    found = [find_architecture(name, records) for name in ("own", "same")]
    assert [each.served_as for each in found if each] == ["own", "own"]
    assert all(each.layers for each in found if each)


def test_a_record_may_be_like_a_type_without_one_and_a_circle_ends() -> None:
    records = known(Architecture("a", like="falcon"), Architecture("b", like="c"), Architecture("c", like="b"))
    served = [find_architecture(name, records) for name in ("a", "b")]
    assert [each.served_as for each in served if each] == ["falcon", "b"]


def test_a_registered_record_counts_before_that_of_the_house_and_one_of_another_kind_not_at_all() -> None:
    card = ModelCard(Path(), {"model_type": "bert"}, records=known(Architecture("bert", encoder=False)))
    assert not is_encoder(card)
    assert not has_classifier(card)
    foreign = ModelCard(Path(), {"model_type": "unheard"}, records=known(ArchitectureRecord("unheard")))
    assert architecture_of(foreign) is None


def test_a_config_is_translated_to_the_type_that_computes_it() -> None:
    config = {"model_type": "a", "hidden_size": 2, "auto_map": {}, "transformers_version": "4"}
    assert translate(config, known(Architecture("a", like="bert"))) == ("bert", {"hidden_size": 2})
    assert translate({"model_type": "bert"}) is None
    assert translate({"model_type": "unheard"}) is None


def test_a_function_that_cannot_be_imported_is_named_with_its_record() -> None:
    records = known(Architecture("a", translate="sie_text.nowhere:function"))
    with pytest.raises(
        ModelLoadError, match=r"architecture 'a' names sie_text\.nowhere:function, which cannot"
    ) as told:
        translate({"model_type": "a"}, records)
    assert told.value.failure == "DEPENDENCY"


@pytest.mark.parametrize("field", ["translate", "model"])
def test_what_is_no_name_of_a_module_is_refused_where_it_is_written(field: str) -> None:
    with pytest.raises(ValueError, match=f"Architecture.'a'.: {field} is 'module.name', not a string like"):
        Architecture("a", **{field: "module.name"})


def test_layers_need_what_no_config_can_leave_out() -> None:
    layers = {name: found.layers for name in ("bert", "qwen3", "t5") if (found := find_architecture(name))}
    assert layers["bert"].needs == {Feature.LAYER_NORM, Feature.POST_NORM}
    assert {Feature.WINDOWS, Feature.CAUSAL, Feature.GROUPS} <= layers["qwen3"].features
    assert not {Feature.WINDOWS, Feature.CAUSAL, Feature.GROUPS} & layers["qwen3"].needs
    assert Feature.GATE not in layers["t5"].needs


def test_the_records_of_the_house_have_names_of_their_own_and_load_no_model_library() -> None:
    assert len({each.name for each in RECORDS}) == len(RECORDS)
    code = "import sys, sie_text.architectures; print(*{'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
