"""One forward pass by one runner after another, each in a process of its own, with the switches that users have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sie_core.cpu_budget import CpuBudget, set_thread_environment
from tests.bench.operations.talking import speaking
from tests.bench.processes.children import ask
from tests.bench.processes.environments import SCRATCH
from tests.bench.processes.servers import weights
from tests.bench.workload.texts import make_texts

KERNELS = "cpu-kernels"
LOOP = "encoder-loop"
PACKED = "packed"
OF_DEBERTA = "deberta"
FLOAT32 = {"SIE_DEFAULT_COMPUTE_PRECISION": "float32"}
# PyTorch and oneDNN have switches of their own: on such a machine the loop would have no more either.
AVX2 = {**FLOAT32, "SIE_CPU_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
WIDENING = {
    "SIE_DEFAULT_COMPUTE_PRECISION": "bfloat16",
    "SIE_CPU_ISA": "avx512",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
}
SETTINGS = {
    "default": {},
    "bfloat16 without its products": WIDENING,
    "float32": FLOAT32,
    "float32 on AVX2 alone": AVX2,
}
"""Environment variables by what they stand for."""
MINILM, QWEN3, DEBERTA = "all-MiniLM-L6-v2", "Qwen3-Embedding-0.6B", "DeBERTa-v3-small"
OPERATIONS = {QWEN3: "encode by Qwen3", DEBERTA: "score by DeBERTa"}
"""The rows of the operations whose weights, of random numbers, are a model's."""
COUNTS = {MINILM: 200, QWEN3: 8, DEBERTA: 100}
QUICK_COUNTS = {MINILM: 50, QWEN3: 4, DEBERTA: 25}
BATCH_TOKENS = 2048
PASSES = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One runner of one model under one setting."""

    model: str
    setting: str
    runner: str

    def measure(self, plan: Plan, folder: Path) -> dict[str, Any]:
        """Give the runner that served, its precision, and tokens a second of each pass."""
        texts = make_texts("mixed", plan.count(self.model))
        job = {
            "threads": plan.threads, "weights": str(folder), "texts": texts, "batch_tokens": BATCH_TOKENS,
            "repeats": PASSES, "profile": False,
        }  # fmt: skip
        variables = {**SETTINGS[self.setting], "SIE_RUNNER": self.runner}
        set_thread_environment(CpuBudget(plan.threads, plan.threads), variables)  # as `sie serve` sets them
        found: dict[str, Any] = ask("runner_speed", job, plan.threads, variables=variables)
        return found


CASES = (
    *(Case(MINILM, setting, runner) for setting in SETTINGS for runner in (KERNELS, LOOP)),
    *(Case(QWEN3, "default", runner) for runner in (KERNELS, LOOP, PACKED)),
    *(Case(DEBERTA, setting, runner) for setting in ("default", "float32") for runner in (KERNELS, OF_DEBERTA)),
)
"""Of each model and setting, the kernels first."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    threads: int
    repeats: int
    quick: bool = False
    """Few texts."""
    tiny: bool = False
    """Tiny models of random numbers: a test of the bench, not of speed."""

    def count(self, model: str) -> int:
        """Tell how many texts a pass has."""
        return (QUICK_COUNTS if self.quick else COUNTS)[model]


def measure(plan: Plan, models: Path = SCRATCH / "models", cases: tuple[Case, ...] = CASES) -> list[dict[str, Any]]:
    """Measure each case in turn, `plan.repeats` times: `model`, `setting`, `runner`, `precision`, `tokens_s` each.

    A case that another runner served, as this machine has no kernels for it, is left out.
    """
    folders = {MINILM: weights()}
    random = [model for model in dict.fromkeys(case.model for case in cases) if model in OPERATIONS]
    if random:
        with speaking("operations.theirs", plan.threads) as child:
            written = child.ask(write=str(models), names=[OPERATIONS[model] for model in random], tiny=plan.tiny)
        folders |= {model: Path(written[OPERATIONS[model]]) for model in random}
    runs = [[case.measure(plan, folders[case.model]) for case in cases] for _ in range(plan.repeats)]
    return list(_gathered(cases, runs))


def _gathered(cases: tuple[Case, ...], runs: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for case, found in zip(cases, zip(*runs, strict=True), strict=True):
        if {each["runner"] for each in found} == {case.runner}:
            yield {
                "model": case.model, "setting": case.setting, "runner": case.runner,
                "precision": found[0]["precision"], "tokens_s": [max(each["tokens_s"]) for each in found],
            }  # fmt: skip
