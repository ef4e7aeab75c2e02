"""A cluster: gateways before a queue, workers behind it, and the messages between them."""

__version__ = "1.0.0"
