"""What the core and its plugins agree on: plain data, Protocols and errors.

This package imports the standard library, NumPy, `sie_sdk.wire` and `sie_sdk.errors` only.
"""

from sie_core.contracts.adapter import Adapter, LabelUse, LoadContext, ModelFacts, Similarity, Truncation, Unit
from sie_core.contracts.backend import Health, InferenceBackend, InferenceReply, ModelInfo, ModelState, Timing, Usage
from sie_core.contracts.batching import Batch, BatchLimits, BatchPolicy, QueuedUnit
from sie_core.contracts.card import ModelCard, ModuleCard
from sie_core.contracts.device import Device, DeviceMemory, DeviceProbe
from sie_core.contracts.device_faults import device_errors, device_fault
from sie_core.contracts.errors import (
    DeviceLost,
    InferenceError,
    InvalidInput,
    LoadFailure,
    ModelLoadError,
    OutOfDeviceMemory,
    PluginError,
)
from sie_core.contracts.families import Claim, ModelFamily, Option, Stage, claim_architectures
from sie_core.contracts.images import MAX_IMAGE_ASPECT, MAX_IMAGE_PIXELS, MAX_REQUEST_PIXELS
from sie_core.contracts.lora import Lora, LoraConfig
from sie_core.contracts.memory import HeldModel, MemoryLimits, MemoryManager, Room
from sie_core.contracts.model import ModelConfig, Profile, ResolvedModel
from sie_core.contracts.object_stores import ObjectStore, ObjectStoreError, ObjectStoreFactory, StoredObject
from sie_core.contracts.outputs import (
    Box,
    Classification,
    DetectedObject,
    Entity,
    ItemOutput,
    Relation,
    Span,
    SparseVector,
)
from sie_core.contracts.postprocess import Converter, OutputDtype, Postprocessor
from sie_core.contracts.reference import COMPARED, Compared, NoReferenceError, Reference, ReferenceModel
from sie_core.contracts.requests import InferenceRequest, InputType, Item, Media, Operation, OutputType, Task, Truncate
from sie_core.contracts.runners import RunnerSpec
from sie_core.contracts.status import EngineStatus, LoadStatus, ModelStatus, StageStatus, WatchableBackend
from sie_core.contracts.tokens import DecodeRequest, DecodingBackend, Token, TokenizeRequest, TokenizingBackend
from sie_core.contracts.weights import (
    PinnedFile,
    TierContext,
    WeightPackage,
    WeightRequest,
    WeightTier,
    WeightTierFactory,
    is_pickled,
)

CONTRACT_VERSION = 1
"""The version of these contracts. A plugin states the one it was built for; another one is refused by name."""

__all__ = [
    "COMPARED",
    "CONTRACT_VERSION",
    "MAX_IMAGE_ASPECT",
    "MAX_IMAGE_PIXELS",
    "MAX_REQUEST_PIXELS",
    "Adapter",
    "Batch",
    "BatchLimits",
    "BatchPolicy",
    "Box",
    "Claim",
    "Classification",
    "Compared",
    "Converter",
    "DecodeRequest",
    "DecodingBackend",
    "DetectedObject",
    "Device",
    "DeviceLost",
    "DeviceMemory",
    "DeviceProbe",
    "EngineStatus",
    "Entity",
    "Health",
    "HeldModel",
    "InferenceBackend",
    "InferenceError",
    "InferenceReply",
    "InferenceRequest",
    "InputType",
    "InvalidInput",
    "Item",
    "ItemOutput",
    "LabelUse",
    "LoadContext",
    "LoadFailure",
    "LoadStatus",
    "Lora",
    "LoraConfig",
    "Media",
    "MemoryLimits",
    "MemoryManager",
    "ModelCard",
    "ModelConfig",
    "ModelFacts",
    "ModelFamily",
    "ModelInfo",
    "ModelLoadError",
    "ModelState",
    "ModelStatus",
    "ModuleCard",
    "NoReferenceError",
    "ObjectStore",
    "ObjectStoreError",
    "ObjectStoreFactory",
    "Operation",
    "Option",
    "OutOfDeviceMemory",
    "OutputDtype",
    "OutputType",
    "PinnedFile",
    "PluginError",
    "Postprocessor",
    "Profile",
    "QueuedUnit",
    "Reference",
    "ReferenceModel",
    "Relation",
    "ResolvedModel",
    "Room",
    "RunnerSpec",
    "Similarity",
    "Span",
    "SparseVector",
    "Stage",
    "StageStatus",
    "StoredObject",
    "Task",
    "TierContext",
    "Timing",
    "Token",
    "TokenizeRequest",
    "TokenizingBackend",
    "Truncate",
    "Truncation",
    "Unit",
    "Usage",
    "WatchableBackend",
    "WeightPackage",
    "WeightRequest",
    "WeightTier",
    "WeightTierFactory",
    "claim_architectures",
    "device_errors",
    "device_fault",
    "is_pickled",
]
