"""The Python client of SIE: three calls, `encode`, `score`, `extract`.

Importing a leaf (`sie_sdk.wire`, `sie_sdk.errors`) loads msgpack and NumPy at most: the clients come on first use.
"""

__version__ = "1.0.0"
