"""The kernels' row: the switches reach the runner, and what did not serve is not shown."""

from pathlib import Path

import pytest

from tests.bench.kernels.measuring import CASES, KERNELS, LOOP, MINILM, QWEN3, Case, Plan, _gathered, measure
from tests.bench.kernels.table import HEAD, rows

AVX2 = "float32 on AVX2 alone"


def test_a_case_that_another_runner_served_is_left_out_and_ratios_are_taken_turn_by_turn() -> None:
    cases = (Case(MINILM, AVX2, KERNELS), Case(MINILM, AVX2, LOOP), Case(QWEN3, "default", KERNELS))
    one, other, foreign = (
        {"runner": runner, "precision": "float32", "tokens_s": rates}
        for runner, rates in ((KERNELS, [300.0, 400.0]), (LOOP, [200.0, 100.0]), (LOOP, [50.0]))
    )
    found = list(_gathered(cases, [[one, other, foreign], [one, other, foreign]]))
    assert [[str(cell) for cell in row] for row in rows(found)] == [
        [MINILM, AVX2, "float32", KERNELS, "400", "–"],
        [MINILM, AVX2, "float32", LOOP, "200", "2.00 (2.00–2.00)"],
    ]


@pytest.mark.slow
def test_kernels_and_loop_are_timed_under_the_switches_of_their_row(tmp_path: Path) -> None:
    cases = tuple(case for case in CASES if case.setting == AVX2)
    found = measure(Plan(threads=1, repeats=1, quick=True, tiny=True), tmp_path, cases)
    assert {each["precision"] for each in found} <= {"float32"}
    assert LOOP in {each["runner"] for each in found}
    assert all(rate > 0 for each in found for rate in each["tokens_s"])
    assert {len(row) for row in rows(found)} == {len(HEAD)}
