"""`python -m tests.soak.releases`: an older release and this tree, each put in place of the other under load."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.soak.releases.building import install, older
from tests.soak.releases.cluster import ROLES, mixed
from tests.soak.releases.replacing import replace


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.releases", description="Can releases be mixed?")
    parser.add_argument("--old", default=older(), help="the older release, a commit; unset: the last tag or so")
    parser.add_argument("--clients", type=int, default=8)
    given, failed = parser.parse_args(arguments), False
    if given.old is None:
        parser.error("there is no history here; name a commit by --old")
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "old").mkdir()
        (folder / "cluster").mkdir()
        with mixed(folder / "cluster", install(given.old, folder / "old")) as cluster:
            print("| to | order | answered | failed or wrong | hidden 503s | slowest s |\n|---|---|---|---|---|---|")
            for order in permutations(ROLES):
                for to in ("new", "old"):
                    seen = replace(cluster, order, to, given.clients)
                    cells = to, ", ".join(order), seen.answered, len(seen.wrong), seen.refused, f"{seen.slowest_s:.1f}"
                    print("", *cells, "", sep=" | ", flush=True)
                    print(*seen.wrong, sep="\n", file=sys.stderr)
                    failed = failed or bool(seen.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
