"""The page a soak prints."""

from __future__ import annotations

from collections.abc import Iterator

from tests.soak.growth.clients import WARM_UP, WARM_UP_PACE
from tests.soak.growth.samples import MEASURES
from tests.soak.growth.soaking import ALLOWED, Outcome

TITLES = {"rss": "resident", "anonymous": "allocated", "files": "open files", "threads": "threads"}
UNITS = {"rss": "MB", "anonymous": "MB"}
MOST_SURPRISES = 20


def page(outcome: Outcome) -> str:
    """Write what was seen and what it means."""
    return "\n".join([*_trends(outcome), "", *_answers(outcome), "", *_verdict(outcome)])


def _trends(outcome: Outcome) -> Iterator[str]:
    plan = outcome.plan
    yield (
        f"{plan.seconds / 60:g} minutes, of which the first {plan.seconds * WARM_UP / 60:.1f} are not judged; "
        f"{plan.clients} clients, {outcome.requests} requests, {outcome.cpu_seconds:.0f} s of CPU time"
    )
    yield ""
    yield f"{'':13}{'at the end':>12}{'a minute':>12}{'95 % interval':>22}{'growth':>10}{'allowed':>9}   verdict"
    for measure in MEASURES:
        found, unit = outcome.trend(measure), UNITS.get(measure, "")
        if found is None:
            yield f"{TITLES[measure]:13}{'not told by this system':>12}"
            continue
        allowed = ALLOWED[measure]
        last = getattr(outcome.samples[-1], measure)
        yield (
            f"{TITLES[measure]:13}{f'{last:.0f} {unit}':>12}{f'{found.slope:+.2f}':>12}"
            f"{f'{found.low:+.2f} … {found.high:+.2f}':>22}{f'{found.growth:+.1f}':>10}{allowed:>9g}"
            f"   {found.verdict(allowed)}"
        )
    yield from _resolution(outcome)


def _resolution(outcome: Outcome) -> Iterator[str]:
    """Say which leak would have shown."""
    found = outcome.trend("anonymous") or outcome.trend("rss")
    requests = outcome.requests * (1 - WARM_UP) / (1 - WARM_UP + WARM_UP * WARM_UP_PACE)
    if found is not None and requests:
        yield f"A leak of {(ALLOWED['rss'] + found.noise) * 1000 / requests:.1f} kB a request would have shown."


def _answers(outcome: Outcome) -> Iterator[str]:
    for kind, answers in sorted(outcome.answers.items()):
        yield f"{kind:36}{', '.join(f'{answer}: {count}' for answer, count in sorted(answers.items()))}"
    unloads = ", ".join(f"{reason}: {count}" for reason, count in sorted(outcome.evictions.items()))
    yield f"{'models unloaded':36}{unloads or 'none'}"


def _verdict(outcome: Outcome) -> Iterator[str]:
    for surprise in outcome.surprises[:MOST_SURPRISES]:
        yield f"not expected: {surprise}"
    growing = [TITLES[measure] for measure in outcome.growing()]
    yield f"grows: {', '.join(growing)}" if growing else "Nothing grows."
    yield f"{len(outcome.surprises)} answers were not expected." if outcome.surprises else "Every answer was expected."
