"""A plugin whose import ends the process, where the test wants it to."""

import os

INTERFACES = ()

if os.environ.get("FAULTS_DIE"):
    os._exit(7)
