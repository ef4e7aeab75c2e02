"""A weightless model family for SIE: deterministic vectors, faults on demand, a record of every run.

`RECORD` holds the events of this process's fakes; importing this loads neither the adapter nor NumPy.
"""

from sie_fake.record import RECORD, Event, Record

__version__ = "1.0.0"

__all__ = ["RECORD", "Event", "Record"]
