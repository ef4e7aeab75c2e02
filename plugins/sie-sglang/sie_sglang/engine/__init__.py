"""The engine as a child of this process: its command line, its life, its HTTP face."""

from sie_sglang.engine.launch import REMEDY, Launch, find_version
from sie_sglang.engine.supervised import Engine

__all__ = ["REMEDY", "Engine", "Launch", "find_version"]
