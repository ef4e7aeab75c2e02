"""SIE: batching."""
