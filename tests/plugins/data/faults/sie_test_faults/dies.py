"""A plugin whose import ends the process, where the test wants it to."""

import os

CONTRACT_VERSION = 1

if os.environ.get("FAULTS_DIE"):
    os._exit(7)
