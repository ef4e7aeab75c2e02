"""The child process of `sie_kit.cli.children`: runs checks and tells of each in a line of JSON on its stdout.

Whatever a plugin prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the checks that the parent asks for."""
    asked = json.loads(sys.argv[1])
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(**told: Any) -> None:
        channel.write(json.dumps(told) + "\n")

    from sie_core.contracts import PluginError
    from sie_core.logs import configure_logging
    from sie_core.settings import SettingsError
    from sie_kit.checklist import checks_of
    from sie_kit.outcomes import Skipped, reason

    configure_logging("CRITICAL", as_json=False)
    arguments = asked["arguments"]
    if arguments.get("models_dir"):
        arguments["models_dir"] = Path(arguments["models_dir"])
    try:
        checks = checks_of(asked["distribution"], **arguments)
    except (PluginError, SettingsError) as error:
        tell(refused=str(error))
        return
    chosen = [check for check in checks if not asked["only"] or check.id in asked["only"]]
    for check in chosen[asked["first"] :]:
        named = {"id": check.id, "part": check.part, "name": check.name}
        tell(started=named)
        started, state, cause = time.monotonic(), "passed", ""
        try:
            check.run()
        except Skipped as error:
            state, cause = "skipped", str(error)
        except BaseException as error:
            state, cause = "failed", reason(error)
        tell(ended={**named, "state": state, "cause": cause, "seconds": round(time.monotonic() - started, 2)})
    tell(complete=True)
    channel.flush()
    os._exit(0)  # a thread that a check left behind would keep the process


if __name__ == "__main__":
    main()
