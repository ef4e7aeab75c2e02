"""How an engine is started: the Python of its environment, the version there, and its arguments."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from sie_core.contracts import ModelLoadError

SUPPORTED = SpecifierSet(">=0.5.23,<0.6", prereleases=True)
INSTALL = "python -m venv sglang && sglang/bin/pip install --pre 'sglang==0.5.23'"
REMEDY = f"Make one with `{INSTALL}`, and name its Python: SIE_SGLANG_PYTHON=sglang/bin/python."
ASK = "import importlib.metadata as m; print(m.version('sglang'))"
ASK_S = 60.0
"""Bounds the question for the version, which imports nothing heavy."""
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj")
"""The layers that LoRA adapters may change, by the last part of their names."""
RESERVED = 8
"""Tokens of its context length that the engine keeps from a text (`max_req_input_len` and one more)."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One model on one engine."""

    python: str
    """The Python of the engine's environment."""
    model: str
    """The model's id, for messages."""
    weights: Path
    device: str
    """`cpu` or `cuda`."""
    index: int
    """The first device it takes."""
    precision: str
    length: int
    """Tokens of the longest text."""
    cached_tokens: int
    """Tokens that its key-value cache holds."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments by name, as the profile has them."""
    trust_remote_code: bool = False
    embeds: bool = True
    """Whether it gives vectors; else log-probabilities of tokens."""
    lora_rank: int = 0
    """The highest rank of LoRA adapters; 0 if none are loaded."""

    def command(self, host: str, port: int, config: Path) -> list[str]:
        """Return the command line. `config` is the YAML file with the engine's key: other users can read arguments."""
        arguments: dict[str, Any] = {
            "model-path": self.weights,
            "host": host,
            "port": port,
            "device": self.device,
            "dtype": self.precision,
            "context-length": self.length + RESERVED,
            "max-total-tokens": self.cached_tokens,
            **({"base-gpu-id": self.index} if self.device == "cuda" else {}),
            **({"max-lora-rank": self.lora_rank} if self.lora_rank else {}),
            **{name.replace("_", "-"): value for name, value in self.options.items()},
        }
        asked = {"--is-embedding": self.embeds, "--trust-remote-code": self.trust_remote_code}
        flags = [flag for flag, wanted in asked.items() if wanted]
        # One word an argument, so that a value which begins with a dash is a value.
        words = [f"--{name}={value}" for name, value in arguments.items()]
        lora = ["--enable-lora", "--lora-target-modules", *LORA_TARGETS] if self.lora_rank else []
        return [self.python, "-m", "sglang.launch_server", *words, *lora, *flags, "--config", str(config)]

    def environment(self) -> dict[str, str]:
        """Return the engine's environment: ours, without what concerns SIE alone."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("SIE_")}
        # The window above holds the reserved tokens too, which no text ever takes.
        return {**ours, "HF_HUB_OFFLINE": "1", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}


def find_version(python: str) -> str:
    """Return the version of sglang in the environment of a Python.

    Raises:
        ModelLoadError: `DEPENDENCY`: there is none, or one outside the range that this plugin knows.
    """
    answer = _ask(python)
    try:
        supported = Version(answer) in SUPPORTED
    except InvalidVersion:
        raise ModelLoadError("DEPENDENCY", f"SIE_SGLANG_PYTHON={python!r} has no sglang. {REMEDY}") from None
    if not supported:
        raise ModelLoadError(
            "DEPENDENCY", f"SIE_SGLANG_PYTHON={python!r} has sglang {answer}; {SUPPORTED} is served. {REMEDY}"
        )
    return answer


def _ask(python: str, question: Sequence[str] = ("-c", ASK)) -> str:
    try:
        asked = subprocess.run([python, *question], capture_output=True, timeout=ASK_S, text=True, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise ModelLoadError("DEPENDENCY", f"SIE_SGLANG_PYTHON={python!r} does not run. {REMEDY}") from None
    return asked.stdout.strip()
