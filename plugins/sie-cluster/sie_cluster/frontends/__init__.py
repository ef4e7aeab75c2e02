"""Front ends of `sie serve`: processes that take HTTP for the one that owns the device."""
