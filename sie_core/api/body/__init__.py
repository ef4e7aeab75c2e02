"""Bodies in and out: reading, strict JSON, content negotiation, reply bodies."""
