"""Bundles as what images are made of: checked, solved into locks, installed from them.

`uv` and `pip` are run as programs; neither is a dependency.
"""

__version__ = "1.0.0"
