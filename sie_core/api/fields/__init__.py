"""Which fields of other APIs are served, ignored and refused."""
