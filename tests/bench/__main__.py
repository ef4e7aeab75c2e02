"""`python -m tests.bench`: prepares, measures part after part, saves after each, and prints the tables."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.bench import blocks
from tests.bench.hardware import describe
from tests.bench.options import Options, parse
from tests.bench.picture import draw
from tests.bench.reference import reference
from tests.bench.results import Results
from tests.bench.servers import SERVERS
from tests.bench.tables import render
from tests.bench.texts import KINDS, make_texts
from tests.bench.turns import take_turns
from tests.bench.verdicts import OURS

NOTE = "Written by `make bench`; every figure of one run on one machine.\n\n![Texts a second](throughput.svg)\n\n"


def main() -> int:
    """Measure, or only render; a missed bar is a finding, a wrong answer of SIE an error."""
    options = parse()
    results = Results.read(options.out) if options.render else measure(options)
    options.out.mkdir(parents=True, exist_ok=True)
    tables = render(results)
    (options.out / "results.md").write_text(f"# Results\n\n{NOTE}{tables}")
    (options.out / "throughput.svg").write_text(draw(results))
    print(tables)
    wrong = [problem for problem in results.problems if problem.startswith(SERVERS[OURS].title)]
    return 1 if wrong else 0


def measure(options: Options) -> Results:
    """Run the parts asked for."""
    prepare(options)
    results = Results(hardware=describe(options.threads), texts={kind: _facts(kind, options) for kind in KINDS})
    steps: dict[str, Callable[[Results, Options], None]] = {
        "commands": blocks.command_line,
        "load": blocks.load,
        "in-process": blocks.in_process,
        "runner": blocks.runner,
        "operations": blocks.operations,
    }
    for part, step in steps.items():
        if part in options.parts:
            print(f"measuring: {part}", file=sys.stderr, flush=True)
            step(results, options)
            results.save(options.out)
    if {"grid", "formats"} & set(options.parts):
        take_turns(results, options)
    if {"accuracy", "scaling"} & set(options.parts):
        blocks.own_server(results, options)
    results.save(options.out)
    return results


def prepare(options: Options) -> None:
    """Build the environments of the servers asked for, before anything is timed."""
    for name in options.servers:
        spec = SERVERS[name]
        for environment in spec.environments:
            environment.build()
        if spec.prepare:
            spec.prepare()


def _facts(kind: str, options: Options) -> str:
    texts = make_texts(kind)
    words = sorted(len(text.split()) for text in texts)
    tokens = reference(texts, options.threads).tokens
    return (
        f"{len(texts)} of {words[0]}–{words[-1]} words, median {words[len(words) // 2]}, "
        f"on average {tokens.mean():.0f} tokens (at most {tokens.max()})"
    )


if __name__ == "__main__":
    sys.exit(main())
