"""`sie plugins new` and `sie plugins check`."""
