"""A plugin whose import takes as long as a model library's."""

import time

INTERFACES = ()

time.sleep(1.1)
