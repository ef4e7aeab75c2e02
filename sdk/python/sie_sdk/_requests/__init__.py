"""Writing requests: to which server, with which headers, and how items and their media travel."""
