"""SIE: defaults."""
