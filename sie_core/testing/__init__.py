"""SIE: testing."""
