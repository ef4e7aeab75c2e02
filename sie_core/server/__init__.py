"""SIE: server."""
