"""SIE: engine."""
