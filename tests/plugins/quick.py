"""The command `sie` with short limits: a plugin that hangs costs a test seconds."""

from sie_core.cache import chain
from sie_core.cli import main
from sie_core.plugins import importing, selection

importing.HUNG_S = 4.0
selection.PROBE_LIMIT_S = 2.0
chain.SILENT_S = 2.0

if __name__ == "__main__":
    main(prog_name="sie")
