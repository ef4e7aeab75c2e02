"""The structures that the compiled kernels read, field by field as in native/encoder.h and native/product.h."""

from __future__ import annotations

import ctypes

integer = ctypes.c_int64
pointer = ctypes.c_void_p


class Matrix(ctypes.Structure):
    """A weight in panels, with its bias."""

    _fields_ = (("panels", pointer), ("bias", pointer), ("inner", integer), ("columns", integer))


class Norm(ctypes.Structure):
    """A norm's weight and bias; no norm without a weight, RMSNorm without a bias."""

    _fields_ = (("weight", pointer), ("bias", pointer))


class Layer(ctypes.Structure):
    """The weights of one layer."""

    _fields_ = (
        ("joined", Matrix),
        ("attention_output", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("attention", Norm),
        ("output", Norm),
        ("post_attention", Norm),
        ("post_mlp", Norm),
        ("query_norm", pointer),
        ("key_norm", pointer),
        ("window", integer),
        ("angles", integer),
        ("position_keys", pointer),
        ("position_queries", pointer),
    )


class RotaryAngles(ctypes.Structure):
    """Cosines and sines of rotary positions."""

    _fields_ = (("cosine", pointer), ("sine", pointer), ("width", integer))


class LowRankMatrix(ctypes.Structure):
    """A LoRA delta of one weight; none if the rank is 0."""

    _fields_ = (("lower", Matrix), ("upper", pointer), ("rank", integer))


class LayerLowRank(ctypes.Structure):
    """The LoRA deltas of one layer."""

    _fields_ = (
        *((name, LowRankMatrix) for name in ("joined", "attention_output", "up", "down")),
        ("position_keys", pointer),
        ("position_queries", pointer),
    )


class DistanceColumns(ctypes.Structure):
    """Maps distances to columns of the relative-position tables; empty unless attention is disentangled."""

    _fields_ = (("columns", pointer), ("farthest", integer), ("own", integer), ("count", integer))


class DistanceBiases(ctypes.Structure):
    """Biases of attention scores by head and distance; none without numbers."""

    _fields_ = (("numbers", pointer), ("farthest", integer))


class Encoder(ctypes.Structure):
    """All layers, and the numbers they share."""

    _fields_ = (
        ("layers", ctypes.POINTER(Layer)),
        ("layer_count", integer),
        ("hidden", integer),
        ("heads", integer),
        ("key_heads", integer),
        ("head_size", integer),
        ("head_width", integer),
        ("activation", integer),
        ("gated", integer),
        ("causal", integer),
        ("rms", integer),
        ("pre_norm", integer),
        ("entry", Norm),
        ("distances", DistanceColumns),
        ("biases", DistanceBiases),
        ("norm_epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
    )


class Table(ctypes.Structure):
    """A table of embeddings; none without rows."""

    _fields_ = (("rows", pointer), ("count", integer))


class Embeddings(ctypes.Structure):
    """The tables whose rows are added up for each token, and the norm of the sum."""

    _fields_ = (
        ("words", Table),
        ("types", Table),
        ("positions", Table),
        ("norm", Norm),
        ("epsilon", ctypes.c_float),
    )


STRUCTURES = (
    *(Matrix, Norm, Layer, RotaryAngles, LowRankMatrix, LayerLowRank, DistanceColumns, DistanceBiases, Encoder),
    *(Table, Embeddings),
)
"""In the order of `sie_size_of` in native/encoder.cpp."""
