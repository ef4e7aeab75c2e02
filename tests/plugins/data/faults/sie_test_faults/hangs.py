"""A plugin whose import never ends, where the test wants it so."""

import os
import threading

INTERFACES = ()

if os.environ.get("FAULTS_HANG"):
    threading.Event().wait()
