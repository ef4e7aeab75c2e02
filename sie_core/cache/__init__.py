"""SIE: cache."""
