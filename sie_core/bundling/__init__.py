"""Bundles as what images are made of: checked, solved into locks, installed from them. Only `cli.bundle` imports it.

`uv` and `pip` are run as programs; neither is a dependency of the core.
"""
