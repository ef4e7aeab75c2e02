"""`python -m tests.bench`: prepares, measures part after part, saves after each, and prints the tables."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.bench import blocks
from tests.bench.clients.turns import take_turns
from tests.bench.hardware import describe
from tests.bench.options import Options, parse
from tests.bench.page.picture import draw
from tests.bench.page.results import Results
from tests.bench.page.tables import render
from tests.bench.page.verdicts import OURS
from tests.bench.processes.servers import SERVERS
from tests.bench.workload.reference import reference
from tests.bench.workload.texts import KINDS, make_texts

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
    compared = not set(options.parts) <= {"cluster", "fairness"}  # which ask no other server
    if compared:
        prepare(options)
    texts = {kind: _facts(kind, options) for kind in KINDS if compared}
    results = Results(hardware=describe(options.threads), texts=texts)
    steps: dict[str, Callable[[Results, Options], None]] = {
        "commands": blocks.command_line,
        "load": blocks.load,
        "in-process": blocks.in_process,
        "runner": blocks.runner,
        "kernels": blocks.kernels,
        "operations": blocks.operations,
        "cluster": blocks.cluster,
        "fairness": blocks.fairness,
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
