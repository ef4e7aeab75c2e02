"""The whole extension surface of SIE: everything that a plugin may register.

A plugin is a module named by an entry point of the group `sie`. It states the interfaces that it was written
for, `INTERFACES = ("sie.family/1",)`, and implements any of these hooks with `@hookimpl`. Hooks run once, at start, on
a thread of their own; they hand over small typed objects and the engine calls those directly afterwards. A hook must
not import a heavy library: it names functions and classes by `"module:name"`.

Every hook returns a list, `sie_schedulers` and `sie_memory_managers` a mapping; either may be empty, None is a mistake.
A hook that raises or returns anything else breaks only its own plugin: the plugin is reported as broken with the cause,
and nothing it registered is used. A name that is taken breaks the plugin likewise. If a part fails later, the engine
goes on without it where it can, and reports the plugin as failing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

from sie_core.contracts import (
    ArchitectureRecord,
    DeviceProbe,
    ModelFamily,
    ObjectStoreFactory,
    OutputDtype,
    PluginSetting,
    Postprocessor,
    QueueTransportFactory,
    Reference,
    RunnerSpec,
    WeightPackage,
    WeightTierFactory,
)
from sie_core.contracts.device.memory import MemoryManagerFactory
from sie_core.contracts.device.scheduling import SchedulerFactory

if TYPE_CHECKING:
    from sie_core.settings import Settings

hookspec = pluggy.HookspecMarker("sie")
hookimpl = pluggy.HookimplMarker("sie")


@hookspec
def sie_model_families() -> Sequence[ModelFamily]:  # type: ignore[empty-body]
    """Register model families.

    Claims on an architecture may overlap: the model's config decides, then the device, then the claim's priority, then
    the family's id.
    """


@hookspec
def sie_runners() -> Sequence[RunnerSpec]:  # type: ignore[empty-body]
    """Register forward passes for families that take them, e.g. a faster encoder loop for `sie-pytorch`."""


@hookspec
def sie_architectures() -> Sequence[ArchitectureRecord]:  # type: ignore[empty-body]
    """Register architectures for the families that read them: `sie_text.architectures.Architecture`, one a model type.

    The card that a family is asked about, and that of a load, hold all of them.
    """


@hookspec
def sie_model_folders() -> Sequence[Path]:  # type: ignore[empty-body]
    """Register folders of model configs (`*.yaml`) that ship with the plugin; configs in `SIE_MODELS_DIR` override
    them.
    """


@hookspec
def sie_schedulers() -> Mapping[str, SchedulerFactory]:  # type: ignore[empty-body]
    """Register schedulers, which decide what runs next and what is refused; `SIE_SCHEDULER` chooses one by name.

    The factory is called at start, with the limits that the operator set. If it or its scheduler fails, the default
    scheduler takes its place, and `/readyz` is 503 until a restart.
    """


@hookspec
def sie_memory_managers() -> Mapping[str, MemoryManagerFactory]:  # type: ignore[empty-body]
    """Register memory managers, which choose the models to unload, by name; `SIE_MEMORY_MANAGER` chooses one.

    The factory is called once, at start, with the limits the operator set. If it fails, the default one takes its
    place.
    """


@hookspec
def sie_device_probes() -> Sequence[DeviceProbe]:  # type: ignore[empty-body]
    """Register device probes, one a device kind. The probe must not import its library before its first call, and lists
    its devices within a minute.
    """


@hookspec
def sie_weight_tiers() -> Sequence[WeightTierFactory]:  # type: ignore[empty-body]
    """Register tiers of weights; they are asked in the order that their factories state.

    A tier that cannot be created, or breaks its contract, is reported and skipped.
    """


@hookspec
def sie_weight_packages() -> Sequence[WeightPackage]:  # type: ignore[empty-body]
    """Register weights that installed Python distributions carry; the `packages` tier serves them without a network."""


@hookspec
def sie_object_stores() -> Sequence[ObjectStoreFactory]:  # type: ignore[empty-body]
    """Register object stores by URL scheme.

    The scheme of a URL in a setting (`SIE_CLUSTER_CACHE`, `SIE_MODELS_DIR`, `SIE_PAYLOAD_STORE_URL`) chooses one.
    """


@hookspec
def sie_queue_transports() -> Sequence[QueueTransportFactory]:  # type: ignore[empty-body]
    """Register queues between machines by URL scheme.

    The scheme of the queue's URL chooses one.
    """


@hookspec
def sie_postprocessors() -> Sequence[Postprocessor]:  # type: ignore[empty-body]
    """Register ways to make one output of another, such as MUVERA; a request or a profile turns one on by its name.

    They come before `output_dtype`. A family's own option of that name is never read.
    """


@hookspec
def sie_output_dtypes() -> Sequence[OutputDtype]:  # type: ignore[empty-body]
    """Register values of `output_dtype` and how each casts or quantises an array."""


@hookspec
def sie_references() -> Sequence[Reference]:  # type: ignore[empty-body]
    """Register libraries that compute a family's outputs on the same weights; `sie verify` compares the two.

    The references of the model's family are asked in the order of their plugins; for each output, the first that
    computes it counts.
    """


@hookspec
def sie_settings() -> Sequence[PluginSetting]:  # type: ignore[empty-body]
    """Register environment variables of the plugin's own; it reads each by `PluginSetting.value`.

    A value that is not allowed stops the start, like one of the core's.
    """


@hookspec
def sie_settings_models() -> Sequence[type[Settings]]:  # type: ignore[empty-body]
    """Register subclasses of `sie_core.settings.Settings` with the variables of the plugin's own commands.

    A command reads its model by `load_settings`. A value that is not allowed stops the start of every command.
    """
