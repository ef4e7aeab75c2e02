"""Compares what the engine returns with a reference library on the same weights.

The whole engine runs in this process: catalog, weights, batches. Libraries and families are those that plugins
registered.
"""

from sie_core.verification.report import Report, Row, Unverified
from sie_core.verification.verifying import verify_model

__all__ = ["Report", "Row", "Unverified", "verify_model"]
