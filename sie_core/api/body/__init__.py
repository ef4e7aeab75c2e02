"""Bodies of requests and replies: reading, strict JSON, content negotiation, writing."""
