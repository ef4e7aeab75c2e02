"""The compiled kernels: which build this processor runs, and their functions and structures as ctypes sees them.

It knows the kernels' memory layout, and no model.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Build:
    """One build of the kernels: what it multiplies in and which flags a processor must have to run it."""

    library: str
    precision: str
    flags: frozenset[str]


AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
BUILDS = (
    Build("kernels_avx512_bfloat16.so", "bfloat16", AVX512 | {"avx512_bf16"}),
    Build("kernels_avx512.so", "float32", AVX512),
    Build("kernels_avx2.so", "float32", frozenset({"avx2", "fma"})),
)
"""Fastest first in each precision."""

ACTIVATIONS = {"gelu": 1, "gelu_new": 2, "gelu_pytorch_tanh": 2, "relu": 3, "silu": 4}
"""transformers' names of the activations the kernels know, and the kernels' own."""

INTERFACE = 4
"""What `sie_interface` of a library must return for the structures below to be its own."""

STAGES = (
    "entering and leaving",
    "query, key, value",
    "rotation",
    "attention",
    "attention output",
    "attention norm",
    "up, activation",
    "down",
    "output norm",
)
"""What the kernels' stopwatch tells apart, in the order of its counters."""

_int = ctypes.c_int64
_pointer = ctypes.c_void_p


class Matrix(ctypes.Structure):
    """A weight in panels, with its bias."""

    _fields_ = (("panels", _pointer), ("bias", _pointer), ("inner", _int), ("columns", _int))


class Layer(ctypes.Structure):
    """The weights of one layer."""

    _fields_ = (
        ("joined", Matrix),
        ("attention_output", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("attention_norm_weight", _pointer),
        ("attention_norm_bias", _pointer),
        ("output_norm_weight", _pointer),
        ("output_norm_bias", _pointer),
        ("window", _int),
        ("angles", _int),
    )


class RotaryAngles(ctypes.Structure):
    """Cosines and sines of rotary positions."""

    _fields_ = (("cosine", _pointer), ("sine", _pointer), ("width", _int))


class LowRankMatrix(ctypes.Structure):
    """What is added to a weight; nothing where the rank is 0."""

    _fields_ = (("lower", Matrix), ("upper", _pointer), ("rank", _int))


class LayerLowRank(ctypes.Structure):
    """What is added to the weights of one layer."""

    _fields_ = tuple((name, LowRankMatrix) for name in ("joined", "attention_output", "up", "down"))


class Encoder(ctypes.Structure):
    """All layers, and the numbers they share."""

    _fields_ = (
        ("layers", ctypes.POINTER(Layer)),
        ("layer_count", _int),
        ("hidden", _int),
        ("heads", _int),
        ("head_width", _int),
        ("activation", _int),
        ("gated", _int),
        ("pre_norm", _int),
        ("norm_epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
    )


@cache
def processor_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Read what this processor can do; empty where the system does not say."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


class Kernels:
    """One loaded build."""

    def __init__(self, build: Build) -> None:
        library = ctypes.CDLL(str(FOLDER / build.library))
        if not hasattr(library, "sie_interface") or library.sie_interface() != INTERFACE:
            raise OSError(f"{build.library} was built for another version of sie-cpu: install sie-cpu again")
        self.precision = build.precision
        for name in ("lanes", "panel", "step", "element_bytes"):
            getattr(library, f"sie_{name}").restype = _int
        self.lanes: int = library.sie_lanes()
        self.panel: int = library.sie_panel()
        self.step: int = library.sie_step()
        self.element_bytes: int = library.sie_element_bytes()
        self.pack = library.sie_pack
        self.pack.argtypes = (_pointer, _int, _int, _pointer)
        self.pack.restype = None
        self._encode = library.sie_encode
        self._encode.argtypes = (
            *(_pointer, _pointer, _pointer, _pointer, _int),  # encoder, states, offsets, keys, sequences
            _pointer,  # angles
            *(_pointer, _int),  # low-rank factors, the widest
            *(_int, _pointer),  # threads, counters
            *(_pointer, _int),  # workspace, its bytes
        )
        self._encode.restype = _int

    def encode(self, *arguments: Any) -> int:
        """Run all layers, with the arguments of `sie_encode`.

        Returns:
            0, or where the workspace is too small for it the bytes wanted, and nothing is done.

        Raises:
            MemoryError: There is no memory for the plan of the batch.
        """
        wanted: int = self._encode(*arguments)
        if wanted < 0:
            raise MemoryError("the kernels found no memory for the plan of a batch")
        return wanted


@cache
def load_kernels(precision: str) -> Kernels:
    """Load the fastest build that computes in `precision` and runs on this processor.

    Raises:
        OSError: None was built, or none runs here; the message says which.
    """
    fitting = [build for build in BUILDS if build.precision == precision and build.flags <= processor_flags()]
    if not fitting:
        raise OSError(f"no build for {precision} runs on this processor")
    built = [build for build in fitting if (FOLDER / build.library).exists()]
    if not built:
        raise OSError(f"{fitting[0].library} was not built: install sie-cpu again on a machine with a C++ compiler")
    return Kernels(built[0])
