"""SIE in frameworks and stores: one module for each, which imports that framework and no other.

Batching and retries are those of `sie_sdk` and of the server.
"""

__version__ = "1.0.0"
