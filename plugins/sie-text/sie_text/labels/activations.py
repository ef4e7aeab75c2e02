"""The activations a checkpoint's files may name, element by element in NumPy: PyTorch's, with its default arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
"""arXiv 1706.02515."""


def softmax(logits: Floats) -> NDArray[np.float64]:
    """Compute the softmax along the last axis, in float64."""
    powers: NDArray[np.float64] = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def sigmoid(values: Floats) -> Floats:
    """Compute 1 / (1 + e^-x), without overflow."""
    powers = np.exp(-np.abs(values))
    return np.where(values >= 0, 1 / (1 + powers), powers / (1 + powers))


def _softplus(values: Floats) -> Floats:
    return np.logaddexp(0, values)


def _elu(values: Floats, alpha: float = 1.0) -> Floats:
    return np.where(values > 0, values, alpha * np.expm1(np.minimum(values, 0)))


ERF_END, ERF_STEPS = 6, 1 << 14
"""Steps of a table of erf from -6 to 6, between which values are interpolated with an error below 1e-7."""


@cache
def _erf_table() -> NDArray[np.float64]:
    return np.array([math.erf(place) for place in np.linspace(-ERF_END, ERF_END, ERF_STEPS + 1)])


def gelu(values: Floats) -> Floats:
    """Weigh by the normal distribution function; NumPy has no error function."""
    table = _erf_table()
    places = np.clip(values / math.sqrt(2) + ERF_END, 0, 2 * ERF_END) * (ERF_STEPS / (2 * ERF_END))
    before = np.fmin(places, ERF_STEPS - 1).astype(np.int64)  # NaN stays NaN by the difference below
    weights = table[before] + (places - before) * (table[before + 1] - table[before])
    weighted: Floats = (values * 0.5 * (1 + weights)).astype(values.dtype)
    return weighted


ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "ELU": _elu,
    "GELU": gelu,
    "Identity": lambda values: values,
    "LeakyReLU": lambda values: np.where(values >= 0, values, 0.01 * values),
    "Mish": lambda values: values * np.tanh(_softplus(values)),
    "ReLU": lambda values: np.maximum(values, 0),
    "SELU": lambda values: _SELU_SCALE * _elu(values, _SELU_ALPHA),
    "SiLU": lambda values: values * sigmoid(values),
    "Sigmoid": sigmoid,
    "Softplus": _softplus,
    "Tanh": np.tanh,
}
"""Keyed by the name of the class of `torch.nn`."""
