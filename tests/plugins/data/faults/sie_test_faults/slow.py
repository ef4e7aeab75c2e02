"""A plugin whose import takes as long as a model library's."""

import time

CONTRACT_VERSION = 1

time.sleep(1.1)
