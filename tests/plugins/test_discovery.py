"""Discovery in the process: which plugins are loaded, what they may hand over, what stops the start."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from sie_core import hookspecs
from sie_core.cli.plugins import table
from sie_core.contracts import PluginError
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginReport, PluginSet, discover, importing
from sie_core.plugins.discovery import OF_THIS_PROJECT
from sie_core.plugins.registration import REGISTRATIONS
from sie_core.settings import Settings

HEAD = f"""
from pathlib import Path
from sie_core.contracts import ArchitectureRecord, Batch, ModelFamily, Option, OutputDtype, Postprocessor, RunnerSpec
from sie_core.contracts import ObjectStoreFactory, PluginSetting, WeightPackage, WeightTierFactory
from sie_core.hookspecs import hookimpl
INTERFACES = {tuple(row.current for row in REGISTRATIONS.values())}
def claims(card): return None
class Probe:
    kind, priority = "same", 0
    def devices(self): return []
    def memory(self, device): raise AssertionError(device)
    def free_caches(self, device): raise AssertionError(device)
"""


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Puts a distribution with one plugin module on the path, as pip would have left it."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def make(name: str, code: str, entry: str | None = None, head: str = HEAD) -> str:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(head + code)
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[sie]\n{entry or name} = {module}\n")
        return name

    yield make
    for module in set(sys.modules) - before:
        if module.startswith("t_"):
            del sys.modules[module]


def found(plugins: PluginSet, distribution: str) -> PluginReport:
    (report,) = [report for report in plugins.reports if report.distribution == distribution]
    return report


def setting(arguments: str) -> str:
    return f"@hookimpl\ndef sie_settings(): return [PluginSetting({arguments})]\n"


def postprocessor(arguments: str) -> str:
    return f"@hookimpl\ndef sie_postprocessors(): return [Postprocessor('t', {arguments})]\n"


def family(name: str) -> str:
    return f"@hookimpl\ndef sie_model_families(): return [ModelFamily('{name}', 'm:f', claims)]\n"


def test_an_active_plugin_is_in_the_set_and_its_report_says_what_it_registers(distribution, tmp_path):
    (tmp_path / "configs").mkdir()
    name = distribution(
        "t-active",
        family("t-one")
        + f"@hookimpl\ndef sie_model_folders(): return [Path({str(tmp_path / 'configs')!r})]\n"
        + "@hookimpl\ndef sie_schedulers(): return {'t-scheduler': list}\n"
        + "@hookimpl\ndef sie_runners(): return [RunnerSpec('t-runner', 'm.Runner', 'm:R')]\n",
    )

    plugins = discover(Settings(plugins=(name,)))

    assert plugins.families["t-one"].load == "m:f"
    assert plugins.model_folders == (tmp_path / "configs",)
    assert plugins.schedulers["t-scheduler"] is list
    assert [runner.name for runner in plugins.runners] == ["t-runner"]
    assert found(plugins, name) == PluginReport(
        name="t-active",
        distribution="t-active",
        version="1.2",
        module="t_active",
        state="active",
        registers={
            "sie_model_families": ("t-one",),
            "sie_runners": ("t-runner",),
            "sie_model_folders": (str(tmp_path / "configs"),),
            "sie_schedulers": ("t-scheduler",),
        },
    )


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise SystemExit(3)", ["t_broken cannot be imported: SystemExit: 3"]),
        ("1 / 0", ["ZeroDivisionError: division by zero"]),
        (
            family("t") + "INTERFACES = ('sie.family/7', 'sie.dtype/1')",
            ["was written for sie.family/7", "serves sie.family/1", "install a newer sie-core"],
        ),
        (
            family("t") + "INTERFACES = ('sie.family/0', 'sie.dtype/1')",
            ["was written for sie.family/0", "install a newer release of the plugin", "compatibility.md"],
        ),
        (
            family("t") + "INTERFACES = ('sie.familly/1', 'sie.dtype/1')",
            ["implements sie_model_families and states no version of sie.family; write INTERFACES = ('sie.family/1',"],
        ),
        (family("t") + "INTERFACES = 'sie.family/1'", ["INTERFACES = 'sie.family/1', not a tuple of strings"]),
        (family("t") + "del INTERFACES", ["does not state the interfaces", "write INTERFACES = ('sie.family/1',"]),
        ("del INTERFACES\nCONTRACT_VERSION = 2", ["CONTRACT_VERSION = 2, and there was only 1"]),
        ("from sie_core.contracts import BatchPolicy", ["cannot import name 'BatchPolicy'", "compatibility.md"]),
        ("@hookimpl\ndef sie_batch_policies(): return {}", ["became sie_schedulers", "compatibility.md says how"]),
        ("raise KeyboardInterrupt", ["cannot be imported: KeyboardInterrupt"]),
        ("def sie_model_families(): return []", ["without @hookimpl"]),
        ("def __getattr__(name): raise OSError(name)\ndel INTERFACES", ["cannot be registered: OSError"]),
        ("@hookimpl\ndef sie_model_family(): return []", ["sie_model_family,", "did you mean sie_model_families?"]),
        ("@hookimpl(wrapper=True)\ndef sie_runners(): yield", ["sie_runners as a wrapper"]),
        ("@hookimpl\ndef sie_model_families(): raise OSError('disk')", ["sie_model_families raised OSError: disk"]),
        ("@hookimpl\ndef sie_model_families(): pass", ["sie_model_families returned None", "empty list"]),
        ("@hookimpl\ndef sie_model_families(): return 'pytorch'", ["returned 'pytorch' (str), not a list"]),
        ("@hookimpl\ndef sie_model_families(): return [claims]", ["at position 0, not a ModelFamily"]),
        ("@hookimpl\nasync def sie_model_families(): return []", ["(coroutine), not a list"]),
        ("@hookimpl\ndef sie_schedulers(): return ['a']", ["not a mapping of scheduler objects"]),
        ("@hookimpl\ndef sie_schedulers(): return {'a': 3}", ["factory is 3, which cannot be called"]),
        ("@hookimpl\ndef sie_architectures(): return ['bert']", ["at position 0, not a ArchitectureRecord"]),
        ("@hookimpl\ndef sie_architectures(): return [ArchitectureRecord('a b')]", ["'a b', not a name of letters"]),
        (
            "from sie_text.architectures import Architecture\n@hookimpl\n"
            "def sie_architectures(): return [Architecture('a', model='m.C')]",
            ["raised ValueError", "model is 'm.C', not a string like 'module:name'"],
        ),
        (family("a.b"), ["a '.' would make it a class path"]),
        (family("t") + "claims = None", ["claims is None, which cannot be called"]),
        (family("t").replace("m:f", "m.f"), ["load is 'm.f', not a string like 'module:function'"]),
        (family("t").replace("claims)", "claims, weights='*.onnx')"), ["weights is '*.onnx', not a tuple"]),
        (family("t").replace("claims)", "claims, weights=('*.pkl',))"), ["weights holds '*.pkl'", "can run code"]),
        (family("t").replace("[Mod", "2 * [Mod"), ["the model family 't' twice"]),
        ("@hookimpl\ndef sie_model_folders(): return [Path('/nowhere')]", ["/nowhere is no folder", "wheel"]),
        ("@hookimpl\ndef sie_device_probes(): return [3]", ["kind is None", "it has no method `devices`"]),
        ("@hookimpl\ndef sie_weight_tiers(): return [WeightTierFactory('t', '9', list)]", ["order is '9', no int"]),
        (
            "Probe.memory = lambda self: None\n@hookimpl\ndef sie_device_probes(): return [Probe()]",
            ["its `memory` lacks the parameter 'device'"],
        ),
        (
            "@hookimpl\ndef sie_memory_managers(): return {'t': lambda: None}",
            ["malformed memory manager", "factory lacks the parameter 'limits'"],
        ),
        (
            "@hookimpl\ndef sie_weight_tiers(): return [WeightTierFactory('t', 9, lambda context, more: None)]",
            ["create takes (context, more) and is called otherwise: missing a required argument: 'more'"],
        ),
        ("@hookimpl\ndef sie_object_stores(): return [ObjectStoreFactory('S3:', list)]", ["scheme is 'S3:'"]),
        ("@hookimpl\ndef sie_output_dtypes(): return [OutputDtype('t', 't', None)]", ["cast is None"]),
        (setting("'SIE_T', 'a', 't', allowed=('b',)"), ["default is 'a', which allowed does not hold"]),
        (setting("'T_SIZE', 'a', 't'"), ["'T_SIZE', not a name in capitals that begins with SIE_"]),
        (setting("'SIE_DEVICE', 'a', 't'"), ["'SIE_DEVICE', a setting of the core"]),
        ("@hookimpl\ndef sie_weight_packages(): return [WeightPackage('r', None, 'm')]", ["distribution is None"]),
        (
            postprocessor("'tokens', 'dense', create=list"),
            ["source is 'tokens', not one of dense, sparse, multivector"],
        ),
        (postprocessor("'dense', 'dense', create=list"), ["source and target are both 'dense'"]),
        (postprocessor("'dense', 'sparse', create=None"), ["create is None, which cannot be called"]),
        (
            postprocessor("'dense', 'sparse', create=dict, parameters=[3]"),
            ["parameters holds 3, which is no sie_core.contracts.Option"],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_whatever_breaks_a_plugin_is_its_cause_and_nothing_of_it_is_used(distribution, code, told, caplog):
    registered = "\n@hookimpl\ndef sie_output_dtypes(): return [OutputDtype('t-left', 't', list)]\n"
    name = distribution("t-broken", (registered if "sie_output_dtypes" not in code else "") + code)
    healthy = distribution("t-healthy", family("t-healthy"))

    plugins = discover(Settings(plugins=(name, healthy)))

    report = found(plugins, name)
    assert report.state == "broken"
    assert report.registers == {}
    for words in told:
        assert words in report.cause
    assert plugins.broken == (report,)
    assert set(plugins.families) == {"t-healthy"}
    assert not plugins.output_dtypes
    assert report.cause in caplog.text


def test_an_optional_hook_of_a_later_core_is_no_mistake(distribution):
    name = distribution("t-later", "@hookimpl(optionalhook=True)\ndef sie_teleporters(): return []\n")

    assert found(discover(Settings(plugins=(name,))), name).state == "active"


def test_a_strict_start_names_every_broken_plugin(distribution):
    one, two = distribution("t-one", "1 / 0"), distribution("t-two", "raise KeyError('x')")

    with pytest.raises(PluginError) as stopped:
        discover(Settings(plugins=(one, two), strict_plugins=True))

    assert "ZeroDivisionError" in str(stopped.value)
    assert "KeyError: 'x'" in str(stopped.value)
    assert "SIE_PLUGINS_BLOCKED=t-one,t-two" in str(stopped.value)


@pytest.mark.parametrize(
    ("hook", "noun"),
    [
        ("sie_model_families(): return [ModelFamily('same', 'm:f', claims)]", "model family"),
        ("sie_schedulers(): return {'same': list}", "scheduler"),
        ("sie_architectures(): return [ArchitectureRecord('same')]", "architecture"),
        ("sie_output_dtypes(): return [OutputDtype('same', 's', list)]", "output dtype"),
        ("sie_postprocessors(): return [Postprocessor('same', 'dense', 'sparse', create=dict)]", "postprocessor"),
        ("sie_weight_tiers(): return [WeightTierFactory('same', 1, list)]", "weight tier"),
        ("sie_object_stores(): return [ObjectStoreFactory('same', list)]", "object store"),
        ("sie_device_probes(): return [Probe()]", "device probe"),
    ],
)
def test_a_name_claimed_twice_breaks_both_strangers_and_names_both_and_the_way_out(distribution, hook, noun):
    names = tuple(distribution(name, f"@hookimpl\ndef {hook}\n") for name in ("t-first", "t-second"))
    other = distribution("t-other", family("t-other"))

    plugins = discover(Settings(plugins=(*names, other)))

    assert set(plugins.families) == {"t-other"}
    for name, second in zip(names, reversed(names), strict=True):
        report = found(plugins, name)
        assert (report.state, report.registers) == ("broken", {})
        module = second.replace("-", "_")
        assert f"registers the {noun} 'same', and so does plugin {second!r} of {second} 1.2 ({module})" in report.cause
        assert f"SIE_PLUGINS_BLOCKED={second}" in report.cause


def test_a_stranger_loses_a_name_of_this_project_which_keeps_it(distribution):
    name = distribution("t-stranger", family("fake"))

    plugins = discover(Settings(plugins=(name, "fake")))

    assert plugins.families["fake"].load != "m:f"
    assert found(plugins, "sie-fake").state == "active"
    assert "model family 'fake', and so does plugin 'fake' of sie-fake" in found(plugins, name).cause


def test_every_distribution_of_this_project_keeps_its_names():
    names = {folder.parent.name for folder in Path(__file__).parents[2].glob("plugins/*/pyproject.toml")}

    assert names == OF_THIS_PROJECT


def test_the_statement_of_before_is_understood_and_deprecated_and_both_are_told(distribution, caplog):
    old = distribution("t-old", "del INTERFACES\nCONTRACT_VERSION = 1\n" + family("t"))
    new = distribution("t-new", family("t-new"))

    plugins = discover(Settings(plugins=(old, new)))

    (told,) = found(plugins, old).deprecated
    assert found(plugins, old).state == "active"
    assert found(plugins, new).deprecated == ()
    for words in ("CONTRACT_VERSION of t_old", "sie-core 1.2", "write INTERFACES = ('sie.family/1',)"):
        assert words in told
    assert f"plugin 't-old' of t-old 1.2: {told}" in caplog.text
    assert any(told in line for line in table(plugins.reports))


def test_a_version_before_the_newest_is_served_and_older_ones_are_not(distribution, monkeypatch):
    row = replace(REGISTRATIONS["sie_model_families"], versions=(2, 3))
    monkeypatch.setitem(REGISTRATIONS, "sie_model_families", row)
    state = {}
    for version in (1, 2, 3, 4):
        name = distribution(f"t-{version}", family(f"t-{version}"), head=HEAD.replace("family/1", f"family/{version}"))
        state[version] = found(discover(Settings(plugins=(name,))), name).state
    both = distribution("t-both", family("t-both"), head=HEAD.replace("family/1", "family/3', 'sie.family/4"))

    assert state == {1: "broken", 2: "active", 3: "active", 4: "broken"}
    assert found(discover(Settings(plugins=(both,))), both).state == "active"


def test_what_a_broken_plugin_claims_clashes_with_nobody(distribution):
    whole, broken = distribution("t-whole", family("same")), distribution("t-broken", family("same") + "1 / 0")

    assert set(discover(Settings(plugins=(whole, broken))).families) == {"same"}


def test_two_distributions_with_one_entry_point_name_are_told_apart(distribution):
    one = distribution("t-one", family("t-a"), entry="twin")
    two = distribution("t-two", family("t-b"), entry="twin")

    both = discover(Settings(plugins=("twin",)))
    only = discover(Settings(plugins=("twin",), plugins_blocked=("T_One",)))

    assert set(both.families) == {"t-a", "t-b"}
    assert {found(both, one).name, found(both, two).name} == {"twin"}
    assert found(only, one).state == "blocked"
    assert set(only.families) == {"t-b"}


def test_the_remedy_for_twins_names_their_distributions(distribution):
    for name in ("t-one", "t-two"):
        distribution(name, family("same"), entry="twin")

    plugins = discover(Settings(plugins=("twin",)))

    assert "SIE_PLUGINS_BLOCKED=t-two" in found(plugins, "t-one").cause
    assert "SIE_PLUGINS_BLOCKED=t-one" in found(plugins, "t-two").cause


def test_an_allow_list_that_names_what_is_not_installed_stops_the_start():
    with pytest.raises(PluginError, match=r"SIE_PLUGINS names 'fakee'.*installed plugins: .*fake"):
        discover(Settings(plugins=("fakee",)))


def test_a_block_list_may_name_what_is_not_installed_and_says_so(caplog):
    discover(Settings(plugins=("fake",), plugins_blocked=("fakee",)))

    assert "SIE_PLUGINS_BLOCKED names 'fakee', which is not installed" in caplog.text


def test_a_plugin_replaces_a_built_in_once_that_is_blocked(distribution):
    name = distribution("t-scheduler", "@hookimpl\ndef sie_schedulers(): return {'fair': list}\n")
    remedy = "sie_core.defaults.scheduler"

    beside = discover(Settings(plugins=(name,)), BUILTINS)
    alone = discover(Settings(plugins=(name,), plugins_blocked=(remedy,)), BUILTINS)

    assert beside.schedulers["fair"] is not list
    assert f"SIE_PLUGINS_BLOCKED={remedy}" in found(beside, name).cause
    assert alone.schedulers["fair"] is list


def test_a_broken_built_in_stops_the_start():
    with pytest.raises(PluginError, match="'wrong' of sie-core"):
        discover(Settings(plugins=("fake",)), (ModuleType("wrong"),))


def test_the_built_ins_bring_what_a_server_needs():
    plugins = discover(Settings(plugins=("fake",)), BUILTINS)

    assert {report.name: report.state for report in plugins.reports if report.distribution == "sie-core"} == {
        module.__name__: "active" for module in BUILTINS
    }
    assert "fair" in plugins.schedulers
    assert [tier.name for tier in sorted(plugins.weight_tiers, key=lambda t: t.order)] == [
        "baked",
        "local",
        "packages",
        "cluster",
        "hub",
    ]
    assert {"float32", "float16", "int8", "uint8", "binary", "ubinary"} <= set(plugins.output_dtypes)
    assert "cpu" in {probe.kind for probe in plugins.device_probes}


def test_two_discoveries_share_nothing():
    one, other = discover(Settings(plugins=("fake",))), discover(Settings(plugins_blocked=("fake",)))

    assert "fake" in one.families
    assert "fake" not in other.families


def test_every_hook_of_the_spec_has_a_row_and_every_row_a_hook():
    assert {name for name in vars(hookspecs) if name.startswith("sie_")} == set(REGISTRATIONS)


def test_a_missing_scheduler_names_those_there_are_and_the_broken_plugins(distribution):
    broken = distribution("t-broken", "1 / 0")
    plugins = discover(Settings(plugins=(broken,)), BUILTINS)

    assert plugins.scheduler("fair") is plugins.schedulers["fair"]
    with pytest.raises(PluginError, match=r"SIE_SCHEDULER='greedy'.*there are: fair.*t-broken"):
        plugins.scheduler("greedy")


def test_hook_calls_are_logged_only_on_request(caplog):
    caplog.set_level(logging.INFO)
    discover(Settings(plugins=("fake",)))
    assert "sie_model_families" not in caplog.text

    discover(Settings(plugins=("fake",), trace_hooks=True))

    assert "hook sie_model_families of plugin 'fake' of sie-fake" in caplog.text


def test_a_report_is_json(distribution):
    name = distribution("t-one", family("t-one"))
    report = found(discover(Settings(plugins=(name,))), name)

    told = json.loads(json.dumps(report.as_dict()))

    assert told["registers"] == {"sie_model_families": ["t-one"]}
    assert told["module"] == "t_one"


def test_an_import_that_takes_long_is_warned_of_by_name(distribution, monkeypatch, caplog):
    monkeypatch.setattr(importing, "SLOW_S", 0.0)
    discover(Settings(plugins=(distribution("t-slow", ""),)))

    assert re.search(r"plugin 't-slow' of t-slow 1\.2: its import took \S+ s, which every start waits for", caplog.text)


def test_an_import_that_hangs_costs_a_limit_and_is_named(distribution, monkeypatch):
    monkeypatch.setattr(importing, "HUNG_S", 2.0)  # the other import has to end within it
    ended = threading.Event()
    monkeypatch.setattr(importing, "t_ended", ended, raising=False)
    code = "from sie_core.plugins import importing\nassert importing.t_ended.wait(60)\n"
    name = distribution("t-hangs", code)
    other = distribution("t-other", family("t-other"))
    try:
        plugins = discover(Settings(plugins=(name, other)))
    finally:
        ended.set()

    (report,) = plugins.broken
    assert "its import did not come back within 2 s; set SIE_PLUGINS_BLOCKED=t-hangs to start" in report.cause
    assert set(plugins.families) == {"t-other"}


def test_what_an_import_changes_of_the_process_is_undone_and_told(distribution, tmp_path):
    folder = Path.cwd()
    code = f"import logging, os\nlogging.disable(logging.CRITICAL)\nos.chdir({str(tmp_path)!r})\n"
    name = distribution("t-changes", code + family("t-changes"))

    plugins = discover(Settings(plugins=(name,)))

    assert Path.cwd() == folder
    assert logging.root.manager.disable == logging.NOTSET
    (report,) = [each for each in plugins.reports_now() if each.distribution == name]
    assert report.state == "failing"
    assert f"its import changed the working directory to {tmp_path}, which is undone" in report.cause
    assert "its import called logging.disable(50), which is undone" in report.cause
    assert set(plugins.families) == {"t-changes"}


def test_what_plugins_print_at_import_goes_to_stderr(distribution, capfd):
    code = "import os\nprint('from Python')\nos.write(1, b'from C\\n')\n"
    discover(Settings(plugins=(distribution("t-prints", code),)))

    out, err = capfd.readouterr()
    assert out == ""
    assert "from Python\n" in err
    assert "from C\n" in err


def test_a_start_without_a_folder_to_write_to_imports_as_well(distribution, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))

    assert found(discover(Settings(plugins=(distribution("t-one", ""),))), "t-one").state == "active"
