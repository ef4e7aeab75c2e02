"""Plugins of a third party, right ones and wrong ones, as wheels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.bundle.wheels import make_wheel

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PLUGIN = """
from pathlib import Path
from sie_core.contracts import Claim, ModelFamily, PluginSetting
from sie_core.hookspecs import hookimpl
INTERFACES = ("sie.family/{version}", "sie.models/1", "sie.setting/1")

def claim(card):
    return Claim("acme weights") if card.model_type == "acme" else None

@hookimpl
def sie_model_families():
    return [ModelFamily("{family}", "acme.loading:load", claim, devices=frozenset({devices}))]

@hookimpl
def sie_model_folders():
    folder = Path(__file__).parent / "models"
    return [folder] if folder.is_dir() else []

@hookimpl
def sie_settings():
    return [PluginSetting("SIE_ACME_SPEED", "slow", "How fast.", allowed=("slow", "fast"))] if {settings} else []
"""
CONFIG = """
sie_id: {id}
hf_id: {id}
{revision}
tasks: {{encode: {{dense: {{dim: 8}}}}}}
profiles: {{default: {{{profile}}}}}
{rest}
"""
MODELS = {
    "acme/pinned": (f"hf_revision: {COMMIT}", "adapter_path: acme", ""),
    "acme/loose": ("", "adapter_path: acme", ""),
    "acme/claimed": (f"hf_revision: {COMMIT}", "", "weights: {model_type: acme}"),
    "acme/of-nobody": (f"hf_revision: {COMMIT}", "", "weights: {model_type: other}"),
    "acme/of-others": (f"hf_revision: {COMMIT}", "adapter_path: strangers", ""),
}


def source(family: str, *, version: int = 1, devices: tuple[str, ...] = (), settings: bool = False) -> str:
    return PLUGIN.format(family=family, version=version, devices=repr(devices), settings=settings)


def configs(package: str) -> Mapping[str, str]:
    return {
        f"{package}/models/{id_.replace('/', '--')}.yaml": CONFIG.format(
            id=id_, revision=pin, profile=profile, rest=rest
        )
        for id_, (pin, profile, rest) in MODELS.items()
    }


def make_plugins(folder: Path) -> None:
    """Write the wheels of all plugins; each registers the family of its own name unless it is wrong in that."""

    def plugin(name: str, text: str, requires: list[str] | None = None, more: Mapping[str, str] | None = None) -> None:
        package = name.replace("-", "_")
        modules = {f"{package}/plugin.py": text, **(more or {})}
        make_wheel(folder, name, "1.4.0", requires or [], plugins={name: f"{package}.plugin"}, modules=modules)

    plugin("acme-plugin", source("acme", settings=True), more=configs("acme_plugin"))
    plugin("acme-clash", source("acme"))
    plugin("acme-gpu", source("acme-gpu", devices=("cuda",)))
    plugin("acme-future", source("acme-future", version=99))
    plugin("acme-broken", "import a_library_that_is_not_there\n")
    plugin("acme-needs-clash", source("acme-needs"), requires=["acme-clash"])
    plugin("acme-egg", source("acme-egg"), requires=["acme-hen"])
    plugin("acme-hen", source("acme-hen"), requires=["acme-egg"])
    plugin("acme-library", source("acme-library"), requires=["numbers<5.24"])
    plugin("acme-other-library", source("acme-other"), requires=["numbers>=5.24"])
    make_wheel(folder, "acme-plain", "1.0.0")
