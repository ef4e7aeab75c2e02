"""SIE: catalog."""
