"""Families, runners, references, packages of weights, probes and commands, each registered wrongly in one way."""

from __future__ import annotations

import sys
import time

from sie_core.commands import Command
from sie_core.contracts import (
    ArchitectureRecord,
    Claim,
    Device,
    DeviceMemory,
    ItemOutput,
    ModelFamily,
    NoReferenceError,
    Reference,
    ReferenceModel,
    RunnerSpec,
    WeightPackage,
)
from tests.kit.faults.seeding import fault

HERE = __name__
CLAIMS = "claims_are_of_its_own_weights"


def load(context):
    raise NotImplementedError


class Loads:
    @staticmethod
    def load(context):
        raise NotImplementedError


def family(claims, name="t", target=f"{HERE}:load", **others):
    return ModelFamily(name, target, claims, **others)


def no_claim(card):
    return None


def claims_all(card):
    return Claim("it is a model", 10**9)


def claims_by_key(card):
    return Claim("mine") if card.config["model_type"] == "t" else None


def claims_by_list(card):
    return Claim("mine") if "T" in [*card.config.get("architectures", [])] else None


def claims_true(card):
    return True


def claims_slowly(card):
    time.sleep(2)


def claims_by_files(card):
    (card.path / "config.json").read_text()


def claims_with_torch(card):
    sys.modules.setdefault("tensorflow", sys)


for claims in (claims_all, claims_by_key, claims_by_list, claims_true, claims_slowly, claims_by_files):
    fault("family", CLAIMS, name=claims.__name__)(family(claims))
fault("family", "claims_import_no_model_library", name="claims_with_torch")(family(claims_with_torch))
LOADS = "its_load_can_be_imported"
fault("family", LOADS, name="load is missing")(family(no_claim, target=f"{HERE}:lode"))
fault("family", LOADS, name="load is a method")(family(no_claim, target=f"{HERE}:Loads.load"))
fault("family", LOADS, name="load takes nothing")(family(no_claim, target=f"{HERE}:no_claim_at_all"))
fault("family", LOADS, name="preview is missing")(family(no_claim, preview=f"{HERE}:preview"))


def no_claim_at_all():
    return None


def companions(card):
    return card.config["tokenizer"]


fault("family", CLAIMS, name="companions fail")(family(no_claim, companions=companions))


class Runs:
    """Enough of a runner to be imported."""


def spec(**fields):
    given = {"name": "t", "interface": "sie.runner/2", "target": f"{HERE}:Runs", **fields}
    return RunnerSpec(**given)


NAMED = "its_names_can_be_imported"
fault("runner", NAMED, name="target is missing")(spec(target=f"{HERE}:Runner"))
fault("runner", NAMED, name="target is no class")(spec(target=f"{HERE}:HERE"))
STATED = "what_it_states_is_well_formed"
fault("runner", STATED, name="interface has no version")(spec(interface="sie.runner"))
fault("runner", STATED, name="devices is a string")(spec(devices="cpu"))
fault("runner", STATED, name="model types is a list")(spec(model_types=["bert"]))
fault("runner", STATED, name="priority is a string")(spec(priority="1"))


class Counts(ReferenceModel):
    """A sound reference in few lines; faults are made of it."""

    gives = frozenset({"score"})

    @classmethod
    def load(cls, context, served):
        return cls()

    def answer(self, items, task):
        if task.operation != "score":
            raise NoReferenceError("scores alone")
        return [ItemOutput(score=float(len(item.text or ""))) for item in items]


class NoReference:
    """Inherits from nothing."""


class HasNoAnswer(ReferenceModel):
    """Cannot be made."""

    gives = frozenset({"score"})

    @classmethod
    def load(cls, context, served):
        return cls()


def reference(**fields):
    given = {
        "name": "t",
        "families": frozenset({"fake"}),
        "target": f"{HERE}:Counts",
        "gives": frozenset({"score"}),
        **fields,
    }
    return Reference(**given)


fault("reference", NAMED, name="target is missing")(reference(target=f"{HERE}:Count"))
fault("reference", NAMED, name="target is no reference")(reference(target=f"{HERE}:NoReference"))
fault("reference", NAMED, name="target has no answer")(reference(target=f"{HERE}:HasNoAnswer"))
fault("reference", STATED, name="gives what nobody asks")(reference(gives=frozenset({"scores"})))
fault("reference", STATED, name="gives nothing")(reference(gives=frozenset()))
fault("reference", STATED, name="requires no requirement")(reference(requires=("sentence transformers",)))
fault("reference", STATED, name="families is a string")(reference(families="fake"))


class Record(ArchitectureRecord):
    """A record whose names a family imports."""

    def __init__(self, name, **names):
        object.__setattr__(self, "name", name)
        for key, value in names.items():
            object.__setattr__(self, key, value)


fault("architecture", NAMED, name="model is missing")(Record("t", model=f"{HERE}:Model"))
fault("architecture", NAMED, name="translate is missing")(Record("t", translate=f"{HERE}_none:translate"))

CARRIED = "its_weights_are_in_the_distribution"


def package(**fields):
    given = {"repo_id": "acme/t", "distribution": "sie-core", "module": "sie_core", **fields}
    return WeightPackage(**given)


SUM = "0" * 64
fault("weight package", CARRIED, name="the distribution is not installed")(package(distribution="sie-nobody"))
fault("weight package", CARRIED, name="the module is missing")(package(module="sie_nobody"))
fault("weight package", CARRIED, name="the folder is missing")(package(folder="weights"))
fault("weight package", CARRIED, name="the file is missing")(package(sha256=(("model.safetensors", SUM),)))
fault("weight package", CARRIED, name="the sum is another")(package(sha256=(("py.typed", SUM),)))
fault("weight package", CARRIED, name="no sum is stated")(package(folder="contracts"))
fault("weight package", CARRIED, name="the repository has no owner")(package(repo_id="t"))


class Probe:
    """A sound probe in few lines; faults are made of it."""

    kind, priority = "t", 0

    def devices(self):
        return [Device("t")]

    def memory(self, device):
        return DeviceMemory(1, 2)

    def free_caches(self, device):
        pass


@fault("device probe", "memory_adds_up")
class UsesMoreThanThereIs(Probe):
    def memory(self, device):
        return DeviceMemory(used=2, total=1)


@fault("device probe", "memory_adds_up")
class CountsInFloats(Probe):
    def memory(self, device):
        return DeviceMemory(0.5, 1.5)


@fault("device probe", "devices_are_of_its_kind")
class FindsOthers(Probe):
    def devices(self):
        return [Device("cpu")]


@fault("device probe", "devices_are_of_its_kind")
class FindsOneTwice(Probe):
    def devices(self):
        return [Device("t"), Device("t")]


@fault("device probe", "devices_are_of_its_kind")
class FindsOthersEachTime(Probe):
    number = 0

    def devices(self):
        self.number += 1
        return [Device("t", self.number)]


@fault("device probe", "caches_may_be_freed_at_any_time")
class FreesNothing(Probe):
    def free_caches(self, device):
        raise NotImplementedError


COMMANDS = "its_commands_can_be_called"
fault("command", COMMANDS, name="target is missing")(Command("t", "Do it.", f"{HERE}:command"))
fault("command", COMMANDS, name="target is no command")(Command("t", "Do it.", f"{HERE}:load"))
fault("command", COMMANDS, name="help is no sentence")(Command("t", "do it", "sie_core.cli.plugins:command"))
TAKEN = "discovery leaves such a command out and logs it"
fault("command", None, name="it takes the name of a built-in one", why=TAKEN)(
    Command("serve", "Do it.", "sie_core.cli.plugins:command")
)
