"""SIE: api."""
