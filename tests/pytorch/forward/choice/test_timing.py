"""How runners are timed and compared, on a clock of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import transformers as tf
from sie_pytorch.forward import Batch
from sie_pytorch.forward.choice.timing import ADVANTAGE, MOST_S, Benchmark, Figures, described, fastest, winner

from tests.pytorch.models import ENCODER


def passes(*seconds: float) -> tuple[Callable[[], None], Callable[[], float], Iterator[float]]:
    """Make passes that take so long one after another, and the clock they move."""
    left, now = iter(seconds), 0.0

    def run() -> None:
        nonlocal now
        now += next(left)

    return run, lambda: now, left


def test_the_fastest_of_several_passes_counts_and_the_first_one_warms_up() -> None:
    run, clock, left = passes(0.001, 0.03, 0.01, 0.02, 0.05, 9)
    assert fastest(run, clock) == pytest.approx(0.01)
    assert list(left) == [9]


def test_short_passes_are_repeated_until_they_took_a_while() -> None:
    run, clock, left = passes(*[0.001] * 100)
    fastest(run, clock)
    assert len(list(left)) == 80


def test_a_slow_runner_is_not_waited_for() -> None:
    run, clock, left = passes(MOST_S, 1)
    assert fastest(run, clock) == pytest.approx(MOST_S)
    assert list(left) == [1]


@pytest.mark.parametrize(
    ("short_s", "long_s", "wins"),
    [
        (1.0, 1.0, False),
        (0.99 / ADVANTAGE, 0.99 / ADVANTAGE, True),
        (0.9, 0.9, False),
        (0.5, 1.2, True),
        (0.5, 1.9, False),
        (1.9, 0.5, False),
    ],
)
def test_another_runner_displaces_the_first_where_it_is_clearly_faster_over_both_probes(
    short_s: float, long_s: float, wins: bool
) -> None:
    first, other = Figures("first", 1.0, 1.0), Figures("other", short_s, long_s)
    assert winner([first, other]) is (other if wins else first)


def test_of_several_clearly_faster_ones_the_fastest_wins() -> None:
    figures = [Figures("first", 4, 4), Figures("second", 3, 3), Figures("third", 2, 2), Figures("fourth", 2.5, 2.5)]
    assert winner(figures).name == "third"


def test_figures_are_written_for_an_operator() -> None:
    figures = [Figures("kernels", 0.00123, 0.0456), Figures("loop", 0.002, 0.1)]
    assert (
        described(figures, (16, 512))
        == "kernels 1.23 ms for 16 tokens and 45.6 ms for 512 tokens, loop 2 ms and 100 ms"
    )


def test_probes_keep_to_the_positions_a_model_has() -> None:
    model = tf.BertModel(tf.BertConfig(**{**ENCODER, "max_position_embeddings": 12}))
    benchmark = Benchmark(model, 12, torch.device("cpu"))
    assert benchmark.tokens == (12, 12)


class Counting:
    """Stands for a runner that takes no time."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def forward(self, batch: Batch) -> None:
        self.tokens.append(len(batch.ids))


def test_a_fast_runner_is_timed_on_a_longer_batch_which_those_after_it_run_too() -> None:
    benchmark = Benchmark(tf.BertModel(tf.BertConfig(**ENCODER)), None, torch.device("cpu"))
    for name in ("first", "second"):
        runner = Counting()
        benchmark.time(name, runner)  # type: ignore[arg-type]
        assert runner.tokens[0] == 16
        assert runner.tokens[-1] == benchmark.tokens[1] == 8192


def test_a_pass_that_tells_its_own_seconds_is_believed() -> None:
    run, clock, _ = passes(*[1.0] * 9)
    own = iter([0.5, 0.02, 0.01, 0.03])
    assert fastest(lambda: run() or next(own), clock, least_passes=3, most_s=9) == pytest.approx(0.01)
