"""A plugin whose import silences the log and leaves the folder."""

import logging
import os

INTERFACES = ()

logging.disable(logging.CRITICAL)
os.chdir("/")
